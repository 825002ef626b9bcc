// What a store has no room for, kept as long as the program runs.

import { NoRoom } from "../errors.js";
import type { Store } from "./store.js";

type Change = (value: unknown) => unknown;

/** What has been written of a record, and the changes that made it, which are made to what the store has as soon as there is room: another
 * tab may have written something newer meanwhile. */
interface Held {
  value: unknown;
  changes: Change[];
}

/** Changes of a record that are kept. After that their result replaces what the store has. */
const MOST_CHANGES = 1_000;

/** Gives what the store has, and in its place what it had no room for. */
export class Overflow implements Store {
  readonly #held = new Map<string, Held>();
  /** Updates follow each other, so that none is made to a value that another one has changed. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(private readonly store: Store) {}

  async get<T>(name: string): Promise<T | undefined> {
    const held = this.#held.get(name);
    return held ? (held.value as T | undefined) : this.store.get<T>(name);
  }

  update<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<void> {
    const updated = this.#last.then(() => this.#update(name, change as Change));
    this.#last = updated.catch(() => undefined);
    return updated;
  }

  async clear(): Promise<void> {
    this.#held.clear();
    await this.store.clear();
  }

  async #update(name: string, change: Change): Promise<void> {
    const before = this.#held.get(name);
    const changes = [...(before?.changes ?? []), change];
    try {
      await this.#write(name, changes);
    } catch (error) {
      if (!(error instanceof NoRoom)) throw error;
      const value = change(before ? before.value : await this.store.get(name));
      this.#held.set(name, { value, changes: changes.length > MOST_CHANGES ? [() => value] : changes });
      return;
    }
    // There is room for something again. What does not fit yet stays, and says so once more.
    try {
      for (const [other, held] of [...this.#held]) await this.#write(other, held.changes);
    } catch (error) {
      if (!(error instanceof NoRoom)) throw error;
    }
  }

  async #write(name: string, changes: Change[]): Promise<void> {
    await this.store.update<unknown>(name, (stored) => changes.reduce((value, change) => change(value), stored));
    this.#held.delete(name);
  }

  lock<T>(name: string, run: () => Promise<T>): Promise<T> {
    return this.store.lock(name, run);
  }
}
