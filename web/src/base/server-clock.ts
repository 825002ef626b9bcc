/** How far this device's clock is from the server's. Times of the server are compared with the server's clock. */
import { Store } from "./store.ts";

/** Milliseconds that this device's clock is ahead; negative: behind. */
export const clockAhead = new Store(0);
/** A smaller difference needs no correction. Machines refuse what is signed more than 5 minutes in the future. */
const MOST_MS = 4 * 60_000;

export function setClockAhead(ms: number | undefined): void {
  clockAhead.set(ms === undefined || Math.abs(ms) < MOST_MS ? 0 : ms);
}

/** The time by the server's clock, as `Date.now()` gives it. */
export const serverNow = (): number => Date.now() - clockAhead.get();
