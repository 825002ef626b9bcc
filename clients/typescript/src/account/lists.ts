// The device lists of users, read from the server, checked version by version, and remembered with their digest for ever.

import { decodeExact } from "../protocol/bytes.js";
import type { Client } from "../client.js";
import { Distrust, Refused } from "../errors.js";
import { List, sharesSessions, type ListedDevice, type Removal, type SignedList } from "../protocol/lists/list.js";
import type { Store } from "../store/store.js";
import { remembered } from "./remembered.js";

/** The maximum age of a list that is used to write or seal something, in milliseconds. */
export const FRESH = 10_000;
/** A list that lacks a key is read again, unless it was read within this many milliseconds. */
export const JUST_READ = 1_000;

/** What is known of an account before its newest list is read. */
export type Known =
  /** The public key of its first device; with a version and its digest, when a device of the account has given them. */
  | { account: string; version?: number; digest?: string }
  /** A list that was checked before. */
  | { list: List };

/** Another tab was faster, so the list that was read here is not to be relied on. */
export class Overtaken extends Refused {}

/** The server shows an older list than before, or another one. */
export class OldList extends Distrust {
  constructor() {
    super("The server shows an old device list, or another one than before. Do not trust it.");
  }
}

/** A list, and what is known of earlier ones. */
type Remembered = SignedList & { removal?: Removal };

const record = (user: string): string => `list ${user}`;

/** The list of a user that was checked last. */
export async function knownList(store: Store, user: string): Promise<List | undefined> {
  const kept = await store.get<Remembered>(record(user));
  return kept && List.remembered(kept, kept.removal);
}

/** Remembers a checked list, unless a newer one was remembered meanwhile. */
export async function rememberList(store: Store, user: string, list: List): Promise<void> {
  const remembered: Remembered = { ...list.signed, ...(list.removal && { removal: list.removal }) };
  await store.update<Remembered>(record(user), (signed) => {
    if (!signed) return remembered;
    const known = JSON.parse(signed.body) as { version: number };
    if (known.version > list.version) throw new Overtaken("Another tab has read a newer device list. Try again.");
    if (known.version === list.version && signed.body !== list.signed.body) throw new OldList();
    return known.version === list.version ? signed : remembered;
  });
}

/** The newest list of a user, checked from what is known. Undefined: the user has none, and none was known. `each` gets every list
 * that was read. */
export async function newestList(
  client: Client,
  user: string,
  known: Known,
  each: (list: List) => void = () => undefined,
): Promise<List | undefined> {
  let newest = "list" in known ? known.list : undefined;
  // The known one comes again, so that a server that has forgotten it is noticed.
  let isMet = newest === undefined;
  let after = newest === undefined ? 0 : newest.version - 1;
  for (;;) {
    const params = { path: { id: user }, query: { after } };
    const page = await client.call("GET", "/v1/users/{id}/devices", params);
    for (const signed of page.lists) {
      if (newest && !isMet) {
        const is = newest.signed;
        if (signed.body !== is.body || signed.signer !== is.signer || signed.signature !== is.signature) throw new OldList();
        isMet = true;
      } else if (newest) {
        newest = await newest.next(signed);
      } else if ("account" in known) {
        newest = await List.first(signed, known.account);
      }
      if (newest) each(newest);
      if ("digest" in known && newest?.version === known.version && newest?.digest !== known.digest) throw new OldList();
    }
    if (!isMet) throw new OldList();
    if (page.nextCursor === null || page.nextCursor === undefined || !newest || newest.version <= after) return newest;
    after = newest.version;
  }
}

/** Whether any list of this account has or had the key as a device that `counts`. */
export async function everHad(
  client: Client,
  user: string,
  account: string,
  key: string,
  counts: (device: ListedDevice) => boolean = ({ role }) => sharesSessions(role),
): Promise<boolean> {
  if (!decodeExact(key, 32)) return false;
  let isFound = false;
  await newestList(client, user, { account }, (list) => {
    const device = list.device(key);
    isFound ||= device !== undefined && counts(device);
  });
  return isFound;
}

/** Keys of which it is remembered whether a list had them. */
const MOST_KEYS = 2_000;
const found = new WeakMap<Client, Map<string, Promise<boolean>>>();

/** The same up to a list, found out once for each key: a page of sessions may have many by one device that was removed. `what` names what
 * counts. */
export function everHadOnce(
  client: Client,
  user: string,
  list: List,
  key: string,
  [what, counts]: [string, (device: ListedDevice) => boolean],
): Promise<boolean> {
  const all = found.get(client) ?? new Map<string, Promise<boolean>>();
  found.set(client, all);
  return remembered(all, `${user} ${list.digest} ${key} ${what}`, MOST_KEYS, () =>
    everHad(client, user, list.body.account, key, counts),
  );
}
