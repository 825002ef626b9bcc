// What a store has no room for, kept as long as the program runs.

import { NoRoom } from "../errors.js";
import type { Store } from "./store.js";

/** Gives what the store has, and in its place what it had no room for. The next change for which there is room is made to what the store
 * has: another tab may have written something newer meanwhile. */
export class Overflow implements Store {
  readonly #held = new Map<string, unknown>();

  constructor(private readonly store: Store) {}

  async get<T>(name: string): Promise<T | undefined> {
    return this.#held.has(name) ? (this.#held.get(name) as T | undefined) : this.store.get<T>(name);
  }

  async update<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<void> {
    try {
      await this.store.update<T>(name, change);
      this.#held.delete(name);
    } catch (error) {
      if (!(error instanceof NoRoom)) throw error;
      const stored = await this.store.get<T>(name);
      // Another change may have come first.
      this.#held.set(name, change(this.#held.has(name) ? (this.#held.get(name) as T | undefined) : stored));
    }
  }

  async clear(): Promise<void> {
    this.#held.clear();
    await this.store.clear();
  }

  lock<T>(name: string, run: () => Promise<T>): Promise<T> {
    return this.store.lock(name, run);
  }
}
