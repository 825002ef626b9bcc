/**
 * Whether the server answers: the stream of the account is open, and no call waits too long. A loss shows only after a while, because
 * most heal at once.
 */
import { type CallWatch, NoAnswer, Problem } from "@ensemble/client";
import { Store } from "../base/store.ts";
import { textOf } from "./failure.ts";
import { noteRemoval, removed } from "./removed.ts";

const QUIET_MS = 2_000;
/** A stream that is held back is opened in two ways, and then does without: as long as nothing fails, that is no loss. */
const OPENING_MS = 20_000;

export interface Connection {
  isLost: boolean;
  /** When what is shown was true; absent while that is not known. */
  since: string | undefined;
  /** What happened. */
  what: string;
  /** What a person can do about it. */
  todo: string;
}

/** What happened and what to do, in words that other tabs can show. */
export type Why = Pick<Connection, "what" | "todo">;

const SILENT: Why = { what: "The server does not answer", todo: "It may be busy, or the network may be losing data." };
const NONE: Connection = { isLost: false, since: undefined, ...SILENT };
export const connection = new Store<Connection>(NONE);

export function whyOf(error: unknown): Why {
  if (error instanceof NoAnswer) {
    if (error.why === "timeout") return SILENT;
    if (error.why === "unreachable") return { what: "No connection to the server", todo: "Check that this device is online." };
    return {
      what: "Something other than the server answers",
      todo: "If your network needs a sign-in, do that in another tab. Otherwise contact the server's operator.",
    };
  }
  if (error instanceof Problem) {
    if (error.status === 503 || error.status === 429) return { what: "The server is busy or starting", todo: "Wait a moment." };
    if (error.status >= 500)
      return { what: `The server has an error (${error.status})`, todo: "If this lasts, contact the server's operator." };
    return { what: "The server refuses this browser", todo: textOf(error) };
  }
  return {
    what: "This page cannot use the server’s answer",
    todo: "If this lasts, they are different versions: reload the page.",
  };
}

/** How the stream of all changes is. `isHeldBack`: the address holds streams back, and what has changed is asked for. */
export type LineState = { state: "open"; isHeldBack?: true } | { state: "connecting"; why?: Why | undefined };
export const heldBack = new Store(false);

/** Something that the server should answer, and has not yet. */
interface Waiting {
  begun: number;
  why: Why | undefined;
  /** An answer to something else says nothing about it. */
  isAlone: boolean;
  quiet: number;
}

const waiting = new Set<Waiting>();
let answered = performance.now();
let timer: ReturnType<typeof setTimeout> | undefined;
/** What is shown was read or kept at this time. */
let known: string | undefined;
let wasOpen = false;

/** Watches the longest wait, and reports it when it is too long. */
function look(): void {
  clearTimeout(timer);
  timer = undefined;
  const now = performance.now();
  const due = [...waiting].map((one) => ({
    ...one,
    at: one.quiet + (one.isAlone ? one.begun : Math.max(one.begun, answered)),
  }));
  // A removed browser makes no more attempts.
  const late = removed.get() ? [] : due.filter(({ at }) => at <= now);
  if (late.length === 0) {
    connection.update((before) => (before.isLost ? NONE : before));
    if (due.length > 0) timer = setTimeout(look, Math.min(...due.map(({ at }) => at)) - now + 5);
    return;
  }
  const why = late.findLast((one) => one.why !== undefined)?.why ?? SILENT;
  connection.update((before) => {
    const next = { isLost: true, since: before.since ?? known, ...why };
    return before.isLost && before.since === next.since && before.what === next.what && before.todo === next.todo
      ? before
      : next;
  });
}

removed.subscribe(look);

function begin(isAlone: boolean, quiet = QUIET_MS): CallWatch & { say: (why: Why) => void } {
  const one: Waiting = { begun: performance.now(), why: undefined, isAlone, quiet };
  waiting.add(one);
  look();
  const say = (why: Why): void => {
    one.why = why;
    one.quiet = QUIET_MS;
    look();
  };
  return {
    say,
    failed: (error) => {
      noteRemoval(error);
      // An error about the call itself is an answer.
      if (error instanceof Problem && error.status < 500 && error.status !== 429) answered = performance.now();
      else say(whyOf(error));
    },
    over: (isAnswered) => {
      waiting.delete(one);
      if (isAnswered) answered = performance.now();
      look();
    },
  };
}

/** Watches one call. */
export const onCall = (): CallWatch => begin(false);

/** Watches something that is tried until it is done, with its pauses. */
export const onTrying = (): CallWatch => begin(true);

/** A lost stream is back when it has lasted this long: one that breaks at once does not count. */
const BACK_MS = 500;

let stream: ReturnType<typeof begin> | undefined;
let back: ReturnType<typeof setTimeout> | undefined;

function isBack(): void {
  [known, wasOpen] = [undefined, true];
  stream?.over(true);
  stream = undefined;
}

export function connectionIs(now: LineState): void {
  clearTimeout(back);
  if (now.state === "open") {
    heldBack.set(now.isHeldBack === true);
    if (connection.get().isLost) back = setTimeout(isBack, BACK_MS);
    else isBack();
    return;
  }
  if (!stream) {
    if (wasOpen) known = new Date().toISOString();
    wasOpen = false;
    stream = begin(true, OPENING_MS);
  }
  if (now.why) stream.say(now.why);
}

/** What is shown was kept at this time, and nothing newer has come. */
export function knownSince(at: string): void {
  if (wasOpen || known !== undefined) return;
  known = at;
  connection.update((before) => (before.isLost ? { ...before, since: at } : before));
}
