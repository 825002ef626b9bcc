// The names of the account's own devices and machines. The server stores them, and this device keeps those that it has checked: it asks for
// no name twice, and the server cannot change one later.

import { Names, type NamesByKey } from "../protocol/lists/name.js";
import type { List } from "../protocol/lists/list.js";
import type { components } from "../openapi.js";
import type { Store } from "../store/store.js";
import type { OwnDevice } from "./keys.js";

/** The name of a device. */
export interface Called {
  /** Its name, which was checked against the list. Null: it has none, or the server gives another one. */
  name: string | null;
  /** The server gives another name than the one that was signed, or none. */
  hasOtherName: boolean;
}

/** A device as the server shows it. */
type Shown = Pick<components["schemas"]["Device"], "publicKey" | "name" | "nameSalt">;

const record = (user: string): string => `names ${user}`;

/** Keeps the names of a list. */
export const keepNames = (store: Store, user: string, names: NamesByKey): Promise<void> =>
  store.update<NamesByKey>(record(user), () => names);

/** The names of the devices in a list of the own account. `shown`: what the server has just answered. */
export async function namesIn({ client, store, userId }: OwnDevice, { body }: List, shown?: readonly Shown[]): Promise<Names> {
  const kept = await Names.opened(body, (await store.get<NamesByKey>(record(userId))) ?? {});
  if (kept.areAllOf(body)) return kept;
  const names = await namesOf(body, shown ?? (await client.call("GET", "/v1/devices")).devices, kept);
  await keepNames(store, userId, names.given);
  return names;
}

/** The same without the store: from what the server shows, and from names that were checked before. */
export function namesOf(body: List["body"], shown: readonly Shown[], checked = new Names()): Promise<Names> {
  const given: NamesByKey = {};
  for (const { publicKey, name, nameSalt } of shown) {
    if (typeof name === "string" && typeof nameSalt === "string") given[publicKey] = { salt: nameSalt, name };
  }
  return Names.opened(body, { ...given, ...checked.given });
}

/** The name of a device of the list. */
export function called(list: List, key: string, names: Names): Called {
  const name = names.get(key) ?? null;
  return { name, hasOtherName: name === null && list.device(key)?.name !== undefined };
}
