// A store in IndexedDB, for browsers and their workers. Keys that cannot be exported stay so.

import { NoRoom, Refused } from "../errors.js";
import type { Store } from "./store.js";

const RECORDS = "records";
const FORBIDDEN = "This browser does not let the page keep anything. Leave the private window, or allow storage for this page.";
const FULL =
  "This browser has no room left for what the page keeps. Free some room on the disk, or remove what other pages keep, and try again.";
const BROKEN = "This browser cannot read what the page has kept. Load the page again; if it stays so, restart the browser.";

export interface IndexedDbOptions {
  /** The browser has closed the database, as when a person empties its storage. It is opened again when it is needed. */
  onClosed?: () => void;
  /** Whether the browser had room for what was just written. */
  onWritten?: (hasRoom: boolean) => void;
}

export class IndexedDbStore implements Store {
  private constructor(
    private db: Promise<IDBDatabase>,
    private readonly name: string,
    private readonly options: IndexedDbOptions,
  ) {}

  /** @param server The origin of the server whose records these are. */
  static async open(server: string, options: IndexedDbOptions = {}): Promise<IndexedDbStore> {
    const name = `ensemble ${server}`;
    const db = connect(name, options);
    await db;
    return new IndexedDbStore(db, name, options);
  }

  async get<T>(name: string): Promise<T | undefined> {
    const transaction = await this.#begin("readonly");
    return done(transaction.objectStore(RECORDS).get(name) as IDBRequest<T | undefined>);
  }

  async update<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<void> {
    try {
      // What is removed needs no room.
      if (await this.#write(name, change)) this.options.onWritten?.(true);
    } catch (error) {
      if (error instanceof NoRoom) this.options.onWritten?.(false);
      throw error;
    }
  }

  /** True: there is a record now. */
  async #write<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<boolean> {
    const transaction = await this.#begin("readwrite", { durability: "strict" });
    return new Promise((resolve, reject) => {
      const records = transaction.objectStore(RECORDS);
      const request = records.get(name) as IDBRequest<T | undefined>;
      let failure: unknown;
      let isThere = false;
      request.onsuccess = () => {
        try {
          const value = change(request.result);
          isThere = value !== undefined;
          if (value === undefined) records.delete(name);
          else records.put(value, name);
        } catch (error) {
          failure = error instanceof DOMException ? explained(error) : error;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(isThere);
      transaction.onabort = () => reject(failure ?? explained(transaction.error));
    });
  }

  async clear(): Promise<void> {
    const transaction = await this.#begin("readwrite");
    await done(transaction.objectStore(RECORDS).clear());
  }

  lock<T>(name: string, run: () => Promise<T>): Promise<T> {
    return navigator.locks.request(`${this.name} ${name}`, run) as Promise<T>;
  }

  async #begin(mode: IDBTransactionMode, options?: IDBTransactionOptions): Promise<IDBTransaction> {
    try {
      return (await this.db).transaction(RECORDS, mode, options);
    } catch (error) {
      // A database that was closed gives no transaction, and one that could not be opened may open now.
      const mayOpen = error instanceof Refused || (error instanceof DOMException && error.name === "InvalidStateError");
      if (!mayOpen) throw explained(error);
      this.db = connect(this.name, this.options);
      return (await this.db).transaction(RECORDS, mode, options);
    }
  }
}

async function connect(name: string, { onClosed }: IndexedDbOptions): Promise<IDBDatabase> {
  try {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(RECORDS);
    const db = await done(request);
    // Another tab may want a newer form, or to remove the database.
    db.onversionchange = () => {
      db.close();
      onClosed?.();
    };
    db.onclose = () => onClosed?.();
    return db;
  } catch (error) {
    throw error instanceof NoRoom ? error : new Refused(FORBIDDEN, { cause: error });
  }
}

/** What the browser's own error means for a person. */
function explained(error: unknown): Refused {
  const isFull = error instanceof DOMException && error.name === "QuotaExceededError";
  return isFull ? new NoRoom(FULL, { cause: error }) : new Refused(BROKEN, { cause: error });
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(explained(request.error));
  });
}
