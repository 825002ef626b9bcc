// Where a device keeps what it must not forget: its keys, the lists that it has checked, the keys that it has seen first.

/** Records by name, for one server. Values are what can be cloned (`structuredClone`), keys of Web Crypto among them. */
export interface Store {
  get<T>(name: string): Promise<T | undefined>;
  /** Changes a record in one step that others do not see half done. `change` must not wait, and may be called
   * again. Undefined removes the record. */
  update<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<void>;
  /** Removes everything. */
  clear(): Promise<void>;
  /** Runs something that no other user of the store runs at the same time, other tabs included. */
  lock<T>(name: string, run: () => Promise<T>): Promise<T>;
}

/** A store that lasts as long as the program. */
export class MemoryStore implements Store {
  readonly #records = new Map<string, unknown>();
  readonly #locks = new Map<string, Promise<unknown>>();

  get<T>(name: string): Promise<T | undefined> {
    return Promise.resolve(this.#records.get(name) as T | undefined);
  }

  update<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<void> {
    const value = change(this.#records.get(name) as T | undefined);
    if (value === undefined) this.#records.delete(name);
    else this.#records.set(name, value);
    return Promise.resolve();
  }

  clear(): Promise<void> {
    this.#records.clear();
    return Promise.resolve();
  }

  async lock<T>(name: string, run: () => Promise<T>): Promise<T> {
    const before = this.#locks.get(name) ?? Promise.resolve();
    const done = before.catch(() => undefined).then(run);
    this.#locks.set(
      name,
      done.catch(() => undefined),
    );
    return done;
  }
}
