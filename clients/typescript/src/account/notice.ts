// What a person should know and no call answers: what was done for others on the way.

/** Of a session that got a new key: who was given it, and who was not (`error` says why). After a removal: whose right to command the
 * removed device had given. */
export type Notice =
  | { readonly is: "key_given"; readonly session: string; readonly user: string }
  | { readonly is: "key_not_given"; readonly session: string; readonly user: string; readonly error: unknown }
  | { readonly is: "right_taken_back"; readonly session: string; readonly user: string };

/** Gives notices to all who listen. */
export class Notices {
  readonly #listeners = new Set<(notice: Notice) => void>();

  /** Calls back with each notice from now on. Returns how to stop that. */
  subscribe(listener: (notice: Notice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  give(notice: Notice): void {
    for (const listener of this.#listeners) listener(notice);
  }
}
