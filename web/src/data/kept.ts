/**
 * What this browser keeps so that the page shows something without a server, and forgets nothing that was typed. All of it is sealed with
 * a key that no script can export, so the records alone say nothing; that key is guarded as the device's own is, by the browser and the
 * disk's encryption. It is bounded, and wiped with the account.
 */
import { IndexedDbStore } from "@ensemble/client/indexeddb";
import { setRoom } from "../base/room.ts";
import { server } from "../base/server.ts";
import { Store } from "../base/store.ts";
import { removed } from "./removed.ts";

/** What was typed is dropped only for newer of its kind, what can be read again also when all of it is too large. */
type Kind = "typed" | "seen";

/** The form of all records. What another version of the page has kept in another form is not read. */
const FORM = 1;

interface Sealed {
  form?: number;
  iv: Uint8Array<ArrayBuffer>;
  data: ArrayBuffer;
  at: string;
}

interface Entry {
  name: string;
  kind: Kind;
  at: string;
  size: number;
}

const MOST: Record<Kind, { count: number; size: number }> = {
  typed: { count: 300, size: 32 << 20 },
  seen: { count: 40, size: 24 << 20 },
};
/** A record that is larger is not kept, in bytes. */
const LONGEST = 3 << 20;

const KEY = "key";
const INDEX = "index";
const encoder = new TextEncoder();

let opened: Promise<{ store: IndexedDbStore; key: CryptoKey }> | undefined;

async function open(): Promise<{ store: IndexedDbStore; key: CryptoKey }> {
  const store = await IndexedDbStore.open(`${server()} kept`, { onWritten: setRoom });
  // Nothing is written where nothing is new: a full browser reads what it has kept.
  const before = await store.get<CryptoKey>(KEY);
  if (before) return { store, key: before };
  const made = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);
  let key: CryptoKey = made;
  // Another tab may have been faster.
  await store.update<CryptoKey>(KEY, (other) => (key = other ?? made));
  return { store, key };
}

/** Everything was wiped: until the page is loaded again nothing is kept, not even what was on its way. */
let isWiped = false;

const kept = async (): Promise<{ store: IndexedDbStore; key: CryptoKey }> => {
  const found = await (opened ??= open().catch((error: unknown) => {
    opened = undefined;
    throw error;
  }));
  if (isWiped) throw new Error("What was kept here was wiped.");
  return found;
};

/** A record is good under its own name only. */
const bound = (name: string, iv: Uint8Array<ArrayBuffer>): AesGcmParams => ({
  name: "AES-GCM",
  iv,
  additionalData: encoder.encode(name),
});

/** Keeps a value that JSON can hold. What cannot be kept is lost silently: the page works without it. */
export async function keep(kind: Kind, name: string, value: unknown): Promise<void> {
  try {
    const plain = encoder.encode(JSON.stringify(value));
    if (plain.length > LONGEST) return;
    const { store, key } = await kept();
    const iv = crypto.getRandomValues(new Uint8Array(12));
    const data = await crypto.subtle.encrypt(bound(name, iv), key, plain);
    const at = new Date().toISOString();
    // What can be read again is not kept by a browser that was removed.
    if (isWiped || (kind === "seen" && removed.get())) return;
    await store.update<Sealed>(name, () => ({ form: FORM, iv, data, at }));
    await index(store, name, { name, kind, at, size: data.byteLength });
  } catch {
    // A full disk, or a private window.
    if (kind === "typed") notKept.set(true);
  }
}

/** Something that was typed could not be kept: it is lost when the page is left. */
export const notKept = new Store(false);

/** What was kept under a name, and when. */
export async function recall<T>(name: string): Promise<{ value: T; at: string } | undefined> {
  try {
    const { store, key } = await kept();
    const sealed = await store.get<Sealed>(name);
    if (!sealed || (sealed.form ?? FORM) !== FORM) return undefined;
    const plain = await crypto.subtle.decrypt(bound(name, sealed.iv), key, sealed.data);
    return { value: JSON.parse(new TextDecoder().decode(plain)) as T, at: sealed.at };
  } catch {
    return undefined;
  }
}

export async function forget(name: string): Promise<void> {
  try {
    const { store } = await kept();
    await store.update(name, () => undefined);
    await index(store, name, undefined);
  } catch {
    // It is not kept either.
  }
}

/** The names of records that begin so. */
export async function keptNames(prefix: string): Promise<string[]> {
  const entries = await kept()
    .then(({ store }) => store.get<Entry[]>(INDEX))
    .catch(() => undefined);
  return (entries ?? []).map(({ name }) => name).filter((name) => name.startsWith(prefix));
}

/** What the names of links' addresses begin with. */
export const LINKS = "link ";

/** Forgets what is kept under names that begin so. */
export async function forgetNamed(prefix: string): Promise<void> {
  for (const name of await keptNames(prefix)) await forget(name);
}

/** Forgets what can be read again, as when the page has failed on it. */
export async function forgetSeen(): Promise<void> {
  try {
    const { store } = await kept();
    for (const { name, kind } of (await store.get<Entry[]>(INDEX)) ?? []) if (kind === "seen") await forget(name);
  } catch {
    // It is not kept either.
  }
}

/** Wipes everything, the key too. */
export async function forgetAll(): Promise<void> {
  const { store } = await (opened ?? open());
  isWiped = true;
  await store.clear();
}

/** Notes a record, and drops the oldest beyond the bounds. */
async function index(store: IndexedDbStore, name: string, entry: Entry | undefined): Promise<void> {
  if (isWiped) return;
  const dropped: string[] = [];
  await store.update<Entry[]>(INDEX, (before) => {
    const entries = (before ?? []).filter((one) => one.name !== name);
    if (entry) entries.push(entry);
    dropped.length = 0;
    const left = Object.fromEntries(Object.entries(MOST).map(([kind, most]) => [kind, { ...most }])) as typeof MOST;
    return entries
      .toReversed()
      .filter((one) => {
        const room = left[one.kind];
        room.count -= 1;
        room.size -= one.size;
        if (room.count >= 0 && room.size >= 0) return true;
        dropped.push(one.name);
        return false;
      })
      .toReversed();
  });
  for (const one of dropped) await store.update(one, () => undefined);
}
