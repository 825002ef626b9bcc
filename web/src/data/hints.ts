/**
 * One stream of hints for all tabs of a browser: it has six connections to a server that speaks HTTP/1.1, and each stream takes one.
 * The tab that has the lock holds the stream and tells the others. A tab whose leader is silent takes the lock from it: browsers
 * freeze tabs.
 */
import { type Client, followHints, type Hint, type StreamState } from "@ensemble/client";
import { type LineState, whyOf } from "./connection.ts";

const BEAT_MS = 5_000;
const SILENT_MS = 12_000;

/** A signal that is aborted with another one, and when the computer loses or gets its network: what is open then is dead, or waits. */
export function lineChange(stop: AbortSignal): AbortSignal {
  const changed = new AbortController();
  const over = AbortSignal.any([stop, changed.signal]);
  for (const name of ["online", "offline"]) addEventListener(name, () => changed.abort(), { once: true, signal: over });
  return over;
}

type Said = { hint: Hint } | LineState | typeof SEEN;
/** What a tab says that is seen and does not hold the stream: its leader may be hidden. */
const SEEN = "seen";

export interface HintOptions {
  /** The account: tabs of another one do not share. */
  user: string;
  signal: AbortSignal;
  onState: (state: LineState) => void;
  onHint: (hint: Hint) => void;
}

/** Delivers hints until the signal is aborted. The first is `all`. Rejects when the server refuses for good. */
export async function shareHints(client: Client, { user, signal, onState, onHint }: HintOptions): Promise<void> {
  const name = `ensemble events ${user}`;
  const channel = new BroadcastChannel(name);
  let receivedAt = performance.now();
  let isLeader = false;
  let seenAt = Number.NEGATIVE_INFINITY;
  const isSeen = (): boolean => !document.hidden || performance.now() - seenAt < 2 * BEAT_MS;
  channel.onmessage = ({ data }: MessageEvent<Said | null>) => {
    if (data === SEEN) return void (seenAt = performance.now());
    receivedAt = performance.now();
    if (isLeader || data === null || typeof data !== "object") return;
    if ("hint" in data) onHint(data.hint);
    else if (data.state === "open" || data.state === "connecting") onState(data);
  };
  // Hints that came before this tab are not repeated.
  onHint({ kind: "all" });
  const lead = async (stop: AbortSignal): Promise<void> => {
    isLeader = true;
    let state: LineState = { state: "connecting" };
    const tell = (said: Said): void => channel.postMessage(said);
    const beat = setInterval(() => tell(state), BEAT_MS);
    try {
      const states = (now: StreamState): void => {
        // The first state of a new try has no error. The earlier error still holds.
        const why =
          now.state === "open"
            ? undefined
            : now.error === undefined
              ? state.state === "open"
                ? undefined
                : state.why
              : whyOf(now.error);
        state = now.state === "open" ? now : { state: "connecting", why };
        onState(state);
        tell(state);
      };
      while (!stop.aborted) {
        const line = lineChange(stop);
        for await (const hint of followHints(client, { signal: line, onState: states, isSeen })) {
          onHint(hint);
          tell({ hint });
        }
        if (!line.aborted) return;
      }
    } finally {
      clearInterval(beat);
      isLeader = false;
    }
  };
  try {
    let steal = false;
    while (!signal.aborted) {
      const stop = new AbortController();
      const end = (): void => stop.abort();
      signal.addEventListener("abort", end, { once: true });
      // A lock is taken from its holder at once, or waited for.
      const waiting = new AbortController();
      const silent = setInterval(() => {
        if (isLeader || document.hidden) return;
        channel.postMessage(SEEN);
        if (performance.now() - receivedAt > SILENT_MS) waiting.abort();
      }, BEAT_MS);
      const options: LockOptions = steal ? { steal: true } : { signal: AbortSignal.any([signal, waiting.signal]) };
      try {
        await navigator.locks.request(name, options, () => lead(stop.signal));
        steal = false;
      } catch (error) {
        // Another tab has taken the lock, or this tab has waited for too long.
        stop.abort();
        if (!(error instanceof DOMException && error.name === "AbortError")) throw error;
        steal = waiting.signal.aborted && !steal;
        receivedAt = performance.now();
      } finally {
        clearInterval(silent);
        signal.removeEventListener("abort", end);
      }
    }
  } finally {
    channel.close();
  }
}
