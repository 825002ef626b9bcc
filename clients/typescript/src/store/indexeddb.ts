// A store in IndexedDB, for browsers and their workers. Keys that cannot be exported stay so.

import { Refused } from "../errors.js";
import type { Store } from "./store.js";

const RECORDS = "records";

export class IndexedDbStore implements Store {
  private constructor(
    private readonly db: IDBDatabase,
    private readonly name: string,
  ) {}

  /** @param server The origin of the server whose records these are. */
  static async open(server: string): Promise<IndexedDbStore> {
    const name = `ensemble ${server}`;
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(RECORDS);
    try {
      const db = await done(request);
      // Another tab may want a newer form, or to remove the database.
      db.onversionchange = () => db.close();
      return new IndexedDbStore(db, name);
    } catch (error) {
      const text = "This browser does not let the page keep anything. Leave the private window, or allow storage for this page.";
      throw new Refused(text, { cause: error });
    }
  }

  async get<T>(name: string): Promise<T | undefined> {
    const transaction = this.db.transaction(RECORDS, "readonly");
    return done(transaction.objectStore(RECORDS).get(name) as IDBRequest<T | undefined>);
  }

  update<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const transaction = this.db.transaction(RECORDS, "readwrite", { durability: "strict" });
      const records = transaction.objectStore(RECORDS);
      const request = records.get(name) as IDBRequest<T | undefined>;
      let failure: unknown;
      request.onsuccess = () => {
        try {
          const value = change(request.result);
          if (value === undefined) records.delete(name);
          else records.put(value, name);
        } catch (error) {
          failure = error;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(failure ?? transaction.error ?? new Refused("The browser has kept nothing."));
    });
  }

  async clear(): Promise<void> {
    const transaction = this.db.transaction(RECORDS, "readwrite");
    await done(transaction.objectStore(RECORDS).clear());
  }

  lock<T>(name: string, run: () => Promise<T>): Promise<T> {
    return navigator.locks.request(`${this.name} ${name}`, run) as Promise<T>;
  }
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("IndexedDB has failed."));
  });
}
