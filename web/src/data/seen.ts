/**
 * Streams of one browser, over all its tabs. It has six connections to a server that speaks HTTP/1.1, and each stream takes one: so only
 * what is on the screen is followed, and at most three things at once. One that waits gets its turn after some seconds.
 */

import { lineChange } from "./hints.ts";

/** A tab that was hidden for this many milliseconds gives its stream back. */
const HIDDEN_MS = 10_000;
/** How long a place is held that others wait for. */
const TURN_MS = 5_000;
const PLACES = ["ensemble stream 1", "ensemble stream 2", "ensemble stream 3"];

/** Runs something that follows a stream whenever the tab is seen, until it ends by itself or the signal is aborted. Its own signal is
 * aborted when the tab was hidden for a while, or another tab's turn has come; then it is run again, and catches up. */
export async function whileSeen(run: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await seen(signal);
    if (signal.aborted) return;
    const turn = new AbortController();
    const stop = (): void => turn.abort();
    const line = lineChange(turn.signal);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const visibility = (): void => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(stop, HIDDEN_MS);
    };
    document.addEventListener("visibilitychange", visibility);
    signal.addEventListener("abort", stop, { once: true });
    try {
      const isOver = await inPlace(async (taken) => {
        await run(taken).catch((error: unknown) => {
          if (!taken.aborted) throw error;
        });
        return !taken.aborted;
      }, line);
      if (isOver) return;
    } finally {
      turn.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visibility);
      signal.removeEventListener("abort", stop);
    }
  }
}

/** Resolves when the tab is seen, or the signal is aborted. */
function seen(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (!document.hidden || signal.aborted) return resolve();
    const done = (): void => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    document.addEventListener("visibilitychange", done);
    signal.addEventListener("abort", done);
  });
}

/** Runs with the first of the places that is free. False: it was ended before it was over. */
async function inPlace(run: (signal: AbortSignal) => Promise<boolean>, signal: AbortSignal): Promise<boolean> {
  const waiting = new AbortController();
  const any = AbortSignal.any([signal, waiting.signal]);
  let result: Promise<boolean> | undefined;
  const held = PLACES.map((name) =>
    navigator.locks
      .request(name, { signal: any }, async () => {
        // Two places can be free at once: the second one is given back.
        if (result) return;
        result = inTurn(run, signal);
        waiting.abort();
        await result.catch(() => undefined);
      })
      .catch((error: unknown) => {
        if (!(error instanceof DOMException)) throw error;
        // A browser that lets the page keep nothing has no locks: nothing is shared with other tabs.
        if (error.name !== "AbortError") result ??= run(signal);
      }),
  );
  await Promise.all(held);
  return result ?? false;
}

/** Gives the place up when another tab waits for one, and it was held for a while. */
async function inTurn(run: (signal: AbortSignal) => Promise<boolean>, signal: AbortSignal): Promise<boolean> {
  const turn = new AbortController();
  const timer = setInterval(() => {
    navigator.locks.query().then(
      ({ pending }) => {
        // A tab that waits does so for each place.
        if (pending?.some(({ name }) => name !== undefined && PLACES.includes(name))) turn.abort();
      },
      () => undefined,
    );
  }, TURN_MS);
  try {
    return await run(AbortSignal.any([signal, turn.signal]));
  } finally {
    clearInterval(timer);
  }
}
