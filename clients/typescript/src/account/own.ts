// The account's own device list and content ring, as this device has checked them.

import { isNotFound, isProblem, Refused } from "../errors.js";
import { encode } from "../protocol/bytes.js";
import type { Signer } from "../protocol/ed25519.js";
import { List, proofText, signList, type DeviceList, type ListedDevice, type SignedList } from "../protocol/lists/list.js";
import { Names, type NamesByKey } from "../protocol/lists/name.js";
import { ContentRing } from "../protocol/seal/content-ring.js";
import { type ChangeDevices, DEVICE, type OwnDevice, type StoredDevice } from "./keys.js";
import { keepLists, MOST_KEPT, ringsOf, sendAgain } from "./kept-lists.js";
import { knownList, newestList, OldList, rememberList } from "./lists.js";
import { keepNames, namesIn } from "./names.js";

/** The account's newest list and content ring, as this device has checked them. */
export interface Own {
  readonly list: List;
  readonly contents: ContentRing;
}

/** Reads them, once for all callers that wait. */
export class OwnReader {
  #own: Own | undefined;
  #readAt = 0;
  #reading: Promise<Own> | undefined;
  readonly #names = new WeakMap<Own, Promise<Names>>();

  constructor(private readonly device: OwnDevice) {}

  /** Reads them again when they are older than `maxAge` milliseconds. */
  async read(maxAge: number): Promise<Own> {
    if (this.#own && performance.now() - this.#readAt <= maxAge) return this.#own;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  /** The names of the devices in the list that was read last. Names that the server withholds are asked for again when the list is read
   * again. */
  async names(): Promise<Names> {
    const own = await this.read(Number.POSITIVE_INFINITY);
    let names = this.#names.get(own);
    if (!names) {
      names = namesIn(this.device, own.list);
      this.#names.set(own, names);
      names.catch(() => this.#names.delete(own));
    }
    return names;
  }

  /** Takes a list and a ring that this device has just made, with what the server received for them. */
  async adopt(own: Own, change: ChangeDevices): Promise<void> {
    const { store, userId, keys } = this.device;
    await rememberList(store, userId, own.list);
    await keepNames(store, userId, change.names ?? {});
    await keepLists(store, userId, [own.list], change.sealed[keys.publicKey], vouchingOf(change));
    [this.#own, this.#readAt] = [own, performance.now()];
  }

  /** A server that was restored gets the lists again that it has lost. */
  async #read(): Promise<Own> {
    const own = await this.#readOnce().catch(async (error: unknown) => {
      if (!(error instanceof OldList)) throw error;
      await sendAgain(this.device);
      return this.#readOnce();
    });
    [this.#own, this.#readAt] = [own, performance.now()];
    return own;
  }

  async #readOnce(): Promise<Own> {
    const { client, store, userId, keys } = this.device;
    for (let isFirst = true; ; isFirst = false) {
      const known = await knownList(store, userId);
      let sealed;
      try {
        sealed = await client.call("GET", "/v1/devices/content-ring");
      } catch (error) {
        if (!isNotFound(error)) throw error;
        if (known || !isFirst) throw new OldList();
        await this.#begin();
        continue;
      }
      const read: List[] = [];
      const list = known?.version === sealed.version ? known : await this.#newest(known, read);
      if (list.device(keys.publicKey)?.boxKey !== keys.boxKey) {
        throw new Refused("This device is not in your account's list of devices. Link it again.");
      }
      // A change that was made between the two calls.
      if (sealed.version > list.version && isFirst) continue;
      const contents = await ContentRing.open(sealed.sealed, keys.box, keys.publicKey, list);
      await rememberList(store, userId, list);
      await keepLists(store, userId, read.length > 0 ? read : [list], sealed.sealed);
      // A server that was restored from a backup gets its lists again from a primary device, and needs the names too. If the device has all
      // names, the server is not asked.
      const isPrimary = list.device(keys.publicKey)?.role === "primary";
      if (isPrimary) await namesIn(this.device, list).catch(() => undefined);
      return { list, contents };
    }
  }

  /** The newest list, checked, and in `read` the last of those that were read for it. */
  async #newest(known: List | undefined, read: List[]): Promise<List> {
    const { client, keys, userId } = this.device;
    const from = known ? { list: known } : { account: keys.publicKey };
    const list = await newestList(client, userId, from, (one) => {
      if (read.push(one) > MOST_KEPT) read.shift();
    });
    if (!list) throw new OldList();
    return list;
  }

  /** The first list: this device alone, as a primary one. */
  async #begin(): Promise<void> {
    const { client, store, userId } = this.device;
    const { publicKey, boxKey, signer } = this.device.keys;
    const contents = ContentRing.generate();
    const names = new Names();
    const entry: ListedDevice = { key: publicKey, boxKey, role: "primary" };
    await names.give(entry, (await store.get<StoredDevice>(DEVICE))?.name ?? "");
    const body: DeviceList = {
      account: publicKey,
      version: 1,
      prev: null,
      created: new Date().toISOString(),
      contentEpoch: 1,
      contentPublicKey: await contents.publicKey(),
      devices: [entry],
    };
    const change = await changeOf(body, contents, signer, names);
    const list = await List.first(change.list, publicKey);
    try {
      await client.call("POST", "/v1/devices", { body: change });
    } catch (error) {
      // Another tab of this device was faster. Then its ring is read.
      if (isProblem(error, "DEVICE_LIST_CONFLICT")) return;
      throw error;
    }
    await rememberList(store, userId, list);
    await keepNames(store, userId, change.names);
    await keepLists(store, userId, [list], change.sealed[publicKey], vouchingOf(change));
  }
}

const vouchingOf = ({ proofs, links }: ChangeDevices): Pick<ChangeDevices, "proofs" | "links"> => ({
  ...(proofs && { proofs }),
  ...(links && { links }),
});

/** Signs a list, and seals the content ring to each device that may open contents. A device that is not in `names` loses its name in the
 * list. `added` are keys that this program has made. */
export async function changeOf(
  body: DeviceList,
  contents: ContentRing,
  signer: Signer,
  names: Names,
  added: readonly Signer[] = [],
): Promise<ChangeDevices & { list: SignedList; names: NamesByKey }> {
  const sealed = await ringsOf(body, contents);
  const sent = names.forNext(body);
  const proofs: Record<string, string> = {};
  for (const one of added) {
    const entry = body.devices.find(({ key }) => key === one.publicKey);
    if (entry) proofs[one.publicKey] = encode(await one.sign(proofText(body.account, entry)));
  }
  return { list: await signList(body, signer), sealed, names: sent, ...(added.length > 0 && { proofs }) };
}
