/** Whether the stream of the account is open. A loss shows only after a while, because most heal at once. */
import { Store } from "../base/store.ts";

const QUIET_MS = 2_000;

export interface Connection {
  isLost: boolean;
  /** When what is shown was true; absent while that is not known. */
  since: string | undefined;
}

export const connection = new Store<Connection>({ isLost: false, since: undefined });

let timer: ReturnType<typeof setTimeout> | undefined;
let isOpen = false;

export function connectionIs(state: "open" | "connecting"): void {
  if (state === "open") {
    clearTimeout(timer);
    timer = undefined;
    isOpen = true;
    connection.set({ isLost: false, since: undefined });
    return;
  }
  const since = isOpen ? new Date().toISOString() : connection.get().since;
  isOpen = false;
  timer ??= setTimeout(() => connection.set({ isLost: true, since: connection.get().since ?? since }), QUIET_MS);
}

/** What is shown was kept at this time, and nothing newer has come. */
export function knownSince(at: string): void {
  connection.update((before) => ({ ...before, since: before.since ?? at }));
}
