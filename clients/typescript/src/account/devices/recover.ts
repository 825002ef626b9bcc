// Recovery: 24 words make this device a primary one of the account that they belong to.

import { Client } from "../../client.js";
import { DeviceCredential } from "../../credential.js";
import { Distrust, isNotFound, Refused } from "../../errors.js";
import { ContentRing } from "../../protocol/seal/content-ring.js";
import { fingerprint, List, type ListedDevice } from "../../protocol/lists/list.js";
import { RecoveryWords } from "../../protocol/seal/recovery.js";
import { refOf } from "../../refs.js";
import type { AccountOptions } from "../context.js";
import { DEVICE, DeviceKeys, keepUser, type StoredDevice } from "../keys.js";
import { keepSent } from "../kept-lists.js";
import { newestList, rememberList } from "../lists.js";
import { called, keepNames, namesOf, type Called } from "../names.js";
import { changeOf } from "../own.js";

/** An account that words belong to. Nothing is changed yet. */
export interface Found {
  /** The words do not say which account they belong to, so the person compares this. */
  fingerprint: string;
  /** The other devices and machines. A machine has a `ref`. */
  devices: (Pick<ListedDevice, "key" | "role" | "by"> & Called & { ref?: string })[];
}

/** The same at this device, before it belongs to the account. */
interface Recoverable extends Found {
  /** The list in which the words are. */
  list: List;
  /** Puts this device into the list as a primary one, and takes out those that are lost. True: one that opened contents is gone. */
  listed(lost: readonly string[]): Promise<boolean>;
}

/** Finds the account of the words. A wrong word is named before anything is sent. */
export async function findAccount(
  typed: string,
  { store, name, ...options }: AccountOptions & { name: string },
): Promise<Recoverable> {
  const kept = await store.get<StoredDevice>(DEVICE);
  if (kept?.userId !== undefined) throw new Refused("There is an account here already. Sign out first.");
  const words = await RecoveryWords.parse(typed);
  const [key, box] = [await words.key(), await words.boxPair()];
  const credential = new DeviceCredential(key);
  const client = new Client({ ...options, credential });
  const { userId } = await credential.signIn(client).catch((error: unknown) => {
    if (isNotFound(error)) throw new Refused("No account has these recovery words. Newer words replace the ones from before.");
    throw error;
  });
  const known = await client.call("GET", "/v1/devices");
  if (!known.list) throw new Distrust("The server shows no devices of this account.");
  const { account } = (await List.remembered(known.list)).body;
  const list = await newestList(client, userId, { account });
  const entry = list?.device(key.publicKey);
  if (!list || entry?.role !== "recovery" || entry.boxKey !== box.publicKey) {
    throw new Distrust("The server shows devices without these words. Nothing was changed. Do not trust it.");
  }
  const { sealed } = await client.call("GET", "/v1/devices/content-ring");
  const contents = await ContentRing.open(sealed, box, key.publicKey, list);
  const shown = await namesOf(list.body, known.devices);
  const others = list.body.devices.filter((device) => device.key !== key.publicKey);
  const devices = await Promise.all(
    others.map(async ({ key, role, by, machineId }) => {
      const ref = machineId === undefined ? {} : { ref: await refOf(machineId) };
      return { key, role, ...(by !== undefined && { by }), ...ref, ...called(list, key, shown) };
    }),
  );

  const listed = async (lost: readonly string[]): Promise<boolean> => {
    const before = await store.get<StoredDevice>(DEVICE);
    if (before?.userId !== undefined) throw new Refused("There is an account here already. Sign out first.");
    // The key of a try that was interrupted, unless it is listed already: then there is nothing more to be signed.
    const isResumed = before !== undefined && before.linking === undefined && before.base === client.base;
    const keys = isResumed
      ? await DeviceKeys.read(before.keys)
      : await (await DeviceKeys.generate()).keep(store, { base: client.base, name });
    let newest = list;
    // A machine goes with the computer on which it is.
    const isLost = ({ key: own, by = own }: ListedDevice): boolean =>
      (lost.includes(own) || lost.includes(by)) && own !== key.publicKey;
    const isOneGone = list.openers().some(isLost);
    if (!list.device(keys.publicKey)) {
      const body = list.successor();
      body.devices = body.devices.filter((device) => !isLost(device));
      // A name of a lost device is free again.
      const names = await namesOf(body, known.devices);
      const entry: ListedDevice = { key: keys.publicKey, boxKey: keys.boxKey, role: "primary" };
      await names.give(entry, name);
      body.devices.push(entry);
      let ring = contents;
      if (isOneGone) {
        ring = ring.next();
        Object.assign(body, { contentEpoch: body.contentEpoch + 1, contentPublicKey: await ring.publicKey() });
      }
      const change = await changeOf(body, ring, key, names, [keys.signer]);
      newest = await list.next(change.list);
      await keepSent(store, userId, newest, change);
      await client.call("POST", "/v1/devices", { body: change });
      await keepNames(store, userId, change.names);
    }
    await rememberList(store, userId, newest);
    await keepUser(store, keys.publicKey, userId);
    return isOneGone;
  };
  // Two tabs at once would replace each other's keys.
  return { fingerprint: await fingerprint(account), devices, list, listed: (lost) => store.lock(DEVICE, () => listed(lost)) };
}
