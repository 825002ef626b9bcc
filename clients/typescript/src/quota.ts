/** How many requests an account may still send, as the server's answers say (RateLimit header fields for HTTP, draft 11). */

/** No server makes a program wait longer at a time. */
const LONGEST = 15_000;

/** The requests of an account, which its programs share. Times are in milliseconds. */
export class Quota {
  /** `window`: the time in which a quota that is spent comes back. `missing`: how long until all of it is there again. */
  #left: { readAt: number; window: number; missing: number } | undefined;

  /** Takes what an answer says. One that was counted by another limit says nothing. */
  measure(headers: Headers): void {
    const missing = seconds(headers.get("ratelimit"), "t");
    const window = seconds(headers.get("ratelimit-policy"), "w");
    if (missing !== undefined && window !== undefined) this.#left = { readAt: performance.now(), window, missing };
  }

  /** How long until a quarter of the quota is there. */
  wait(): number {
    if (this.#left === undefined) return 0;
    const { readAt, window, missing } = this.#left;
    return Math.min(LONGEST, window / 4, Math.max(0, missing - (performance.now() - readAt) - (window / 4) * 3));
  }
}

function seconds(field: string | null, parameter: string): number | undefined {
  const value = new RegExp(`^"account";(?:.*;)?${parameter}=(\\d+)(?:;|$)`).exec(field ?? "")?.[1];
  return value === undefined ? undefined : Number(value) * 1_000;
}
