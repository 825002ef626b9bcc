/** Whether the server says that this browser was removed from its account. Then nothing is asked of it any more. */
import { isProblem } from "@ensemble/client";
import { Store } from "../base/store.ts";

export const removed = new Store(false);

/** Gets each error that the server answers with. */
export function noteRemoval(error: unknown): void {
  if (isProblem(error, "DEVICE_REMOVED")) removed.set(true);
}
