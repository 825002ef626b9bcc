// Which failed calls are repeated, when, and for how long.

import { NoAnswer, Problem } from "./errors.js";

/** A step of a pause that doubles up to `longest`: half of it and a random part of the other half, so that clients that failed
 * together do not come back together. Never shorter than the server asked for. Milliseconds. */
export function pause(failures: number, wanted?: number, { first = 100, longest = 5_000 } = {}): number {
  const step = Math.min(first * 2 ** Math.min(failures - 1, 16), longest);
  const jittered = step * (0.5 + Math.random() / 2);
  return wanted === undefined ? jittered : wanted + Math.min(jittered, wanted / 4 + 50);
}

/** Waits. Rejects with the signal's reason when that is aborted. */
export function sleep(ms: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** POSTs that change nothing when they come twice: they name what they make, or say how something shall be. */
const HARMLESS_POSTS = [
  /^\/v1\/auth\/challenge$/,
  /^\/v1\/auth\/links\/[^/]+\/refusal$/,
  /^\/v1\/devices$/,
  /^\/v1\/looks$/,
  /^\/v1\/sessions\/[^/]+\/shares$/,
  /^\/v3\/sessions\/[^/]+\/messages(\/batch)?$/,
  /^\/v1\/orchestrator\/runs\/[^/]+\/(cancel|pend)$/,
  /^\/v1\/orchestrator\/runs\/[^/]+\/tasks\/[^/]+\/(apply|discard)$/,
];

/** Whether a second request with the same content changes nothing. `path` is without the prefix of the server. */
export function isRepeatable(method: string, path: string, headers: Headers, body: string | undefined): boolean {
  switch (method) {
    case "GET":
    case "HEAD":
      // A view of a public link without its token costs a use.
      return !/^\/v1\/public-sessions\/[^/]+$/.test(path) || headers.has("x-view-token") || headers.has("idempotency-key");
    case "DELETE":
      return true;
    case "PATCH":
      // What replaces a version of something is refused the second time, although it has happened.
      return !/"expected[A-Z]/.test(body ?? "");
    default:
      return headers.has("idempotency-key") || HARMLESS_POSTS.some((known) => known.test(path));
  }
}

/** Whether a failed request may be repeated: `wanted` is the pause that the server asked for, in milliseconds. */
export function again(error: unknown, repeatable: boolean): { wanted: number | undefined } | undefined {
  if (error instanceof NoAnswer) {
    return repeatable || !error.mayHaveHappened ? { wanted: undefined } : undefined;
  }
  if (!(error instanceof Problem)) return undefined;
  const wanted = error.retryAfter === undefined ? undefined : error.retryAfter * 1_000;
  switch (error.code) {
    case "RATE_LIMITED":
      return { wanted };
    case "UNAVAILABLE":
    case "UPSTREAM_ERROR":
    case "UPSTREAM_TIMEOUT":
    case "REQUEST_TIMEOUT":
      return repeatable ? { wanted } : undefined;
    case "CONFLICT":
      // The first request with this idempotency key is still at work.
      return repeatable && wanted !== undefined ? { wanted } : undefined;
    default:
      return undefined;
  }
}

/** Whether the call may have had its effect although it failed. */
export function isAmbiguous(error: unknown): boolean {
  if (error instanceof NoAnswer) return error.mayHaveHappened;
  return error instanceof Problem && (error.status >= 500 || error.code === "REQUEST_TIMEOUT");
}
