// Recovery: 24 words make this device a primary one of the account that they belong to.

import { Client } from "../client.js";
import { DeviceCredential } from "../credential.js";
import { Distrust, isNotFound, Refused } from "../errors.js";
import { ContentRing } from "../seal/content-ring.js";
import { fingerprint, List, type ListedDevice } from "../seal/device-list.js";
import { RecoveryWords } from "../seal/recovery.js";
import { Account, type AccountOptions } from "./account.js";
import { changeOf } from "./change.js";
import { DEVICE, DeviceKeys, keepUser, type StoredDevice } from "./keys.js";
import { newestList, rememberList } from "./lists.js";

/** An account that words belong to. Nothing is changed yet. */
export interface Recovering {
  /** The words do not say which account they belong to, so the person compares this. */
  fingerprint: string;
  /** The other devices. Names are what the server says. */
  devices: (ListedDevice & { name?: string })[];
  /** Makes this device a primary one, and removes those that are lost. */
  finish(lost?: readonly string[]): Promise<Account>;
}

/** Finds the account of the words. A wrong word is named before anything is sent. */
export async function recover(
  typed: string,
  { store, name, ...options }: AccountOptions & { name: string },
): Promise<Recovering> {
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
  const known = await client.data(client.http.GET("/v1/devices"));
  if (!known.list) throw new Distrust("The server shows no devices of this account.");
  const { account } = (await List.remembered(known.list)).body;
  const list = await newestList(client, userId, { account });
  const entry = list?.device(key.publicKey);
  if (!list || entry?.role !== "recovery" || entry.boxKey !== box.publicKey) {
    throw new Distrust("The server shows devices without these words. Nothing was changed. Do not trust it.");
  }
  const { sealed } = await client.data(client.http.GET("/v1/devices/content-ring"));
  const contents = await ContentRing.open(sealed, box, key.publicKey, list);
  const names = new Map(known.devices.map((device) => [device.publicKey, device.name ?? undefined]));
  const others = list.body.devices.filter((device) => device.key !== key.publicKey);
  const devices = others.map((device) => {
    const called = names.get(device.key);
    return called === undefined ? device : { ...device, name: called };
  });

  const listed = async (lost: readonly string[]): Promise<boolean> => {
    const before = await store.get<StoredDevice>(DEVICE);
    if (before?.userId !== undefined) throw new Refused("There is an account here already. Sign out first.");
    // The key of a try that was interrupted, unless it is listed already: then there is nothing more to be signed.
    const isResumed = before !== undefined && before.linking === undefined && before.base === client.base;
    const keys = isResumed
      ? await DeviceKeys.read(before.keys)
      : await (await DeviceKeys.generate()).keep(store, { base: client.base, name });
    let newest = list;
    const isLost = (device: ListedDevice): boolean => lost.includes(device.key) && device.key !== key.publicKey;
    const isOneGone = list.openers().some(isLost);
    if (!list.device(keys.publicKey)) {
      const body = list.successor();
      body.devices = [
        ...body.devices.filter((device) => !isLost(device)),
        { key: keys.publicKey, boxKey: keys.boxKey, role: "primary" },
      ];
      let ring = contents;
      if (isOneGone) {
        ring = ring.next();
        Object.assign(body, { contentEpoch: body.contentEpoch + 1, contentPublicKey: await ring.publicKey() });
      }
      const change = await changeOf(body, ring, key, [keys.signer]);
      newest = await list.next(change.list);
      await client.data(client.http.POST("/v1/devices", { body: { ...change, names: { [keys.publicKey]: name } } }));
    }
    await rememberList(store, userId, newest);
    await keepUser(store, keys.publicKey, userId);
    return isOneGone;
  };
  const finish = async (lost: readonly string[] = []): Promise<Account> => {
    // Two tabs at once would replace each other's keys.
    const isOneGone = await store.lock(DEVICE, () => listed(lost));
    const opened = await Account.open({ ...options, store });
    if (!opened) throw new Refused("This browser cannot keep keys.");
    await opened.own();
    // This device knows no title yet.
    if (isOneGone) await opened.sessions.seeTitles(list);
    if (isOneGone) await opened.sessions.afterRemoval();
    return opened;
  };
  return { fingerprint: await fingerprint(account), devices, finish };
}
