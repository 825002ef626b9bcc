/** When a digit on the keyboard answers a card. A person who types a text must never answer by it, so all of this has to hold. */

/** How long a card stands before a digit counts, also after the one before it was answered, in milliseconds. */
const STANDS_MS = 1_000;
/** How long nothing was typed before a digit counts. */
const QUIET_MS = 1_500;
/** How long no other key follows. */
export const ALONE_MS = 250;

export interface Moment {
  now: number;
  /** When the card appeared. */
  shownAt: number;
  /** When a card was answered here for the last time. */
  answeredAt: number;
  /** When a key was pressed for the last time that is text. */
  typedAt: number;
  /** There is nothing in the composer. */
  isEmpty: boolean;
  /** The end of the card was on the screen. */
  isEndSeen: boolean;
  /** The key is held down. */
  isRepeated: boolean;
  /** A field, a menu or a dialog has the focus. */
  isElsewhere: boolean;
}

/** Whether a digit may count at this moment. It does once no other key has followed for `ALONE_MS`. */
export function mayCount(at: Moment): boolean {
  return (
    at.isEmpty &&
    at.isEndSeen &&
    !at.isRepeated &&
    !at.isElsewhere &&
    at.now - Math.max(at.shownAt, at.answeredAt) >= STANDS_MS &&
    at.now - at.typedAt >= QUIET_MS
  );
}

interface Option {
  kind: string;
}

/** What the digits of a permission choose: to allow once, to deny, to deny and stop, and the options that reach further. */
export function byDigit<O extends Option>(
  options: readonly O[],
): { allow: O | undefined; deny: O | undefined; stop: O | undefined; further: O[] } {
  const allow = options.find(({ kind }) => kind === "allow_once");
  const [deny, stop] = options.filter(({ kind }) => kind === "reject_once");
  return { allow, deny, stop, further: options.filter((one) => one !== allow && one !== deny && one !== stop) };
}
