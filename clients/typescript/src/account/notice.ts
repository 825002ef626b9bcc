// What a person should know although no call returns it: what was done for other users meanwhile.

/** Of a session that got a new key: who was given it, who was not (`error` says why), and who was left out, because only the server names
 * them. After a removal: whose right to command the removed device had given, and, where no call answers it, in how many live sessions it was not looked for such rights. Of a session of
 * which something is not finished: the server calls it missing, and it stays noted until it is deleted here. Of an own session at a server that
 * was restored: it had `lost` keys, and has new ones. What was written under the lost ones does not open. */
export type Notice =
  | { readonly is: "key_given"; readonly session: string; readonly user: string }
  | { readonly is: "key_not_given"; readonly session: string; readonly user: string; readonly error: unknown }
  | { readonly is: "right_taken_back"; readonly session: string; readonly user: string }
  | { readonly is: "rights_not_searched"; readonly sessions: number }
  | { readonly is: "session_missing"; readonly session: string }
  | { readonly is: "left_out"; readonly session: string; readonly user: string }
  | { readonly is: "keys_replaced"; readonly session: string; readonly lost: number };

/** How many are kept for the first listener. */
const MOST = 100;

/** Gives notices to all listeners. */
export class Notices {
  readonly #listeners = new Set<(notice: Notice) => void>();
  /** A recovery gives notices before its caller has the account. */
  #early: Notice[] = [];

  /** Calls back with each notice from now on, and first with those that had no listener. Returns a function that stops it. */
  subscribe(listener: (notice: Notice) => void): () => void {
    this.#listeners.add(listener);
    for (const notice of this.#early.splice(0)) listener(notice);
    return () => this.#listeners.delete(listener);
  }

  give(notice: Notice): void {
    if (this.#listeners.size === 0 && this.#early.length < MOST) this.#early.push(notice);
    for (const listener of this.#listeners) listener(notice);
  }
}
