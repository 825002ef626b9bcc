// The account's own device list and content ring, as this device has checked them.

import type { Client } from "../client.js";
import { Distrust, isNotFound, isProblem, Refused } from "../errors.js";
import { encode } from "../protocol/bytes.js";
import type { Signer } from "../protocol/ed25519.js";
import { List, opensContents, proofText, signList, type DeviceList } from "../protocol/lists/list.js";
import { ContentRing } from "../protocol/seal/content-ring.js";
import type { Store } from "../store/store.js";
import { DEVICE, type DeviceKeys, type StoredDevice } from "./keys.js";
import { knownList, newestList, OLD_LIST, rememberList } from "./lists.js";
import type { components } from "../openapi.js";

export type ChangeDevices = components["schemas"]["ChangeDevices"];

/** This device of an account at a server. */
export interface OwnDevice {
  readonly client: Client;
  readonly store: Store;
  readonly keys: DeviceKeys;
  readonly userId: string;
}

/** The account's newest list and content ring, as this device has checked them. */
export interface Own {
  readonly list: List;
  readonly contents: ContentRing;
}

/** Reads them, once for all that wait. */
export class OwnReader {
  #own: Own | undefined;
  #readAt = 0;
  #reading: Promise<Own> | undefined;

  constructor(private readonly device: OwnDevice) {}

  /** Read again when they are older than so many milliseconds. */
  async read(maxAge: number): Promise<Own> {
    if (this.#own && performance.now() - this.#readAt <= maxAge) return this.#own;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  /** Takes a list and a ring that this device has just made. */
  async adopt(own: Own): Promise<void> {
    await rememberList(this.device.store, this.device.userId, own.list);
    [this.#own, this.#readAt] = [own, performance.now()];
  }

  async #read(): Promise<Own> {
    const { client, store, userId, keys } = this.device;
    for (let isFirst = true; ; isFirst = false) {
      const known = await knownList(store, userId);
      let sealed;
      try {
        sealed = await client.call("GET", "/v1/devices/content-ring");
      } catch (error) {
        if (!isNotFound(error)) throw error;
        if (known || !isFirst) throw new Distrust(OLD_LIST);
        await this.#begin();
        continue;
      }
      const list = known?.version === sealed.version ? known : await this.#newest(known);
      if (list.device(keys.publicKey)?.boxKey !== keys.boxKey) {
        throw new Refused("This device is not in your account's list of devices. Link it again.");
      }
      // A change that was made between the two calls.
      if (sealed.version > list.version && isFirst) continue;
      const contents = await ContentRing.open(sealed.sealed, keys.box, keys.publicKey, list);
      await this.adopt({ list, contents });
      return { list, contents };
    }
  }

  async #newest(known: List | undefined): Promise<List> {
    const { client, keys, userId } = this.device;
    const from = known ? { list: known } : { account: keys.publicKey };
    const list = await newestList(client, userId, from);
    if (!list) throw new Distrust(OLD_LIST);
    return list;
  }

  /** The first list: this device alone, as a primary one. */
  async #begin(): Promise<void> {
    const { client, store, userId } = this.device;
    const { publicKey, boxKey, signer } = this.device.keys;
    const contents = ContentRing.generate();
    const body: DeviceList = {
      account: publicKey,
      version: 1,
      prev: null,
      created: new Date().toISOString(),
      contentEpoch: 1,
      contentPublicKey: await contents.publicKey(),
      devices: [{ key: publicKey, boxKey, role: "primary" }],
    };
    const change = await changeOf(body, contents, signer);
    const name = (await store.get<StoredDevice>(DEVICE))?.name ?? "";
    const list = await List.first(change.list, publicKey);
    const names = { [publicKey]: name };
    try {
      await client.call("POST", "/v1/devices", { body: { ...change, names } });
    } catch (error) {
      // Another tab of this device was faster. Then its ring is read.
      if (isProblem(error, "DEVICE_LIST_CONFLICT")) return;
      throw error;
    }
    await rememberList(store, userId, list);
  }
}

/** Signs a list, and seals the content ring to each device that may open contents. `added` are keys that this program has made. */
export async function changeOf(
  body: DeviceList,
  contents: ContentRing,
  signer: Signer,
  added: readonly Signer[] = [],
): Promise<ChangeDevices> {
  const sealed: Record<string, string> = {};
  for (const device of body.devices.filter(({ role }) => opensContents(role))) {
    sealed[device.key] = await contents.sealTo(device, body.account);
  }
  const proofs: Record<string, string> = {};
  for (const one of added) {
    const entry = body.devices.find(({ key }) => key === one.publicKey);
    if (entry) proofs[one.publicKey] = encode(await one.sign(proofText(body.account, entry)));
  }
  return { list: await signList(body, signer), sealed, ...(added.length > 0 && { proofs }) };
}
