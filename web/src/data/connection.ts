/** Whether the stream of the account is open. A loss shows only after a while, because most heal at once. */
import { Store } from "../base/store.ts";

const QUIET_MS = 2_000;

export const connection = new Store<{ isLost: boolean }>({ isLost: false });

let timer: ReturnType<typeof setTimeout> | undefined;

export function connectionIs(state: "open" | "connecting"): void {
  if (state === "open") {
    clearTimeout(timer);
    timer = undefined;
    connection.set({ isLost: false });
  } else {
    timer ??= setTimeout(() => connection.set({ isLost: true }), QUIET_MS);
  }
}
