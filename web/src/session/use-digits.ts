/** Digits that answer a card, and other keys that are text for the composer when nothing has the focus. */
import { type RefObject, useEffect, useRef } from "react";
import { ALONE_MS, mayCount } from "./digits.ts";

let typedAt = Number.NEGATIVE_INFINITY;
let answeredAt = Number.NEGATIVE_INFINITY;

/** A card was answered here. */
export function hasAnswered(): void {
  answeredAt = performance.now();
}

addEventListener(
  "input",
  () => {
    typedAt = performance.now();
  },
  { capture: true },
);

const isText = (event: KeyboardEvent): boolean => event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey;

/** Whether a field, a menu or a dialog has the focus, or is open over the card. */
function isElsewhere(): boolean {
  const { activeElement } = document;
  return (
    activeElement?.matches("input, textarea, select, [contenteditable], [role=menu] *, [role=listbox] *") === true ||
    document.querySelector("dialog[open]") !== null
  );
}

/** Whether the end of the card, where its buttons are, is on the screen now. */
function isEndShown(card: HTMLElement | null): boolean {
  return card?.checkVisibility() === true && card.getBoundingClientRect().bottom <= innerHeight + 1;
}

interface Digits {
  /** The card. Its digits count while it is on the screen. */
  card: RefObject<HTMLElement | null>;
  isEndSeen: boolean;
  /** Where there are several cards, the digits of the one that has the focus count. */
  isAlone: boolean;
  isEmpty: boolean;
  /** What the digit chooses. Undefined: it does nothing. */
  choose: (digit: number) => void;
}

/** Listens for digits as long as the card stands. */
export function useDigits(now: Digits): void {
  const latest = useRef(now);
  useEffect(() => {
    latest.current = now;
  });
  useEffect(() => {
    const shownAt = performance.now();
    let waiting: { timer: ReturnType<typeof setTimeout>; digit: string } | undefined;
    const keyed = (event: KeyboardEvent) => {
      const { card, isEndSeen, isAlone, isEmpty } = latest.current;
      if (waiting) {
        clearTimeout(waiting.timer);
        const { digit } = waiting;
        waiting = undefined;
        // The person types: both keys are text, the digit first.
        insertIntoComposer(digit);
        typedAt = performance.now();
        return;
      }
      const isMine = isAlone || card.current?.contains(document.activeElement) === true;
      const at = performance.now();
      const isDigit = isText(event) && /^[1-9]$/.test(event.key);
      const counts =
        isDigit &&
        isMine &&
        isEndShown(card.current) &&
        mayCount({
          now: at,
          shownAt,
          answeredAt,
          typedAt,
          isEmpty,
          isEndSeen,
          isRepeated: event.repeat,
          isElsewhere: isElsewhere(),
        });
      if (!counts) {
        if (isText(event) && !event.isComposing) typedAt = at;
        return;
      }
      event.preventDefault();
      event.stopPropagation();
      const timer = setTimeout(() => {
        waiting = undefined;
        latest.current.choose(Number(event.key));
      }, ALONE_MS);
      waiting = { timer, digit: event.key };
    };
    addEventListener("keydown", keyed, { capture: true });
    return () => {
      removeEventListener("keydown", keyed, { capture: true });
      clearTimeout(waiting?.timer);
    };
  }, []);
}

/** The composer of the screen, where there is one. */
const composer = (): HTMLTextAreaElement | null => document.querySelector(".composer textarea");

/** Puts a text where the cursor of the composer is. */
export function insertIntoComposer(text: string): void {
  const field = composer();
  if (!field) return;
  field.focus();
  // As typed: React is notified, and it can be undone.
  document.execCommand("insertText", false, text);
}

/** What is typed while nothing that takes keys has the focus goes into the composer. */
export function useTyping(): void {
  useEffect(() => {
    const keyed = (event: KeyboardEvent) => {
      if (event.defaultPrevented || !isText(event) || event.isComposing || event.key === " ") return;
      // A heading or a card has the focus when nothing that takes keys has it.
      if (document.activeElement?.matches("body, main, h1, .request") === false) return;
      if (document.querySelector("dialog[open]") === null) composer()?.focus();
    };
    addEventListener("keydown", keyed);
    return () => removeEventListener("keydown", keyed);
  }, []);
}
