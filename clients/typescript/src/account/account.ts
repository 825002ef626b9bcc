// An account as this device sees it: its keys, its checked device list, and what is sealed to it.

import { Client, type ClientOptions } from "../client.js";
import { DeviceCredential, type Token } from "../credential.js";
import { Distrust, isNotFound, isProblem, Refused } from "../errors.js";
import { ContentRing } from "../seal/content-ring.js";
import { fingerprint, List, type DeviceList } from "../seal/device-list.js";
import { Overflow } from "../store/overflow.js";
import type { Store } from "../store/store.js";
import { changeOf } from "./change.js";
import { Devices } from "./devices.js";
import { DEVICE, DeviceKeys, keepUser, type StoredDevice } from "./keys.js";
import { knownList, newestList, OLD_LIST, rememberList } from "./lists.js";
import { Machines } from "./machines.js";
import { People } from "./people.js";
import { Sessions } from "./sessions.js";

/** How to reach the server, and where this device keeps what it knows. */
export interface AccountOptions extends Omit<ClientOptions, "credential"> {
  store: Store;
}

/** The account's newest list and content ring, as this device has checked them. */
export interface Own {
  readonly list: List;
  readonly contents: ContentRing;
}

/** What is known without asking the server. */
export interface StoredAccount {
  base: string;
  userId: string;
  /** Of this device. */
  publicKey: string;
  name: string;
}

export class Account {
  readonly devices: Devices;
  readonly machines: Machines;
  readonly people: People;
  readonly sessions: Sessions;
  /** What there is no room for lasts as long as this program. */
  readonly store: Store;
  #own: Own | undefined;
  #readAt = 0;
  #reading: Promise<Own> | undefined;

  constructor(
    readonly client: Client,
    store: Store,
    readonly keys: DeviceKeys,
    readonly userId: string,
    readonly credential: DeviceCredential,
  ) {
    this.store = new Overflow(store);
    this.devices = new Devices(this);
    this.machines = new Machines(this);
    this.people = new People(this);
    this.sessions = new Sessions(this);
  }

  /** Makes a new account with this device as its first one. `name` is for the list of devices. */
  static async create(options: AccountOptions & { name: string; keys?: DeviceKeys }): Promise<Account> {
    // Two tabs at once would replace each other's keys.
    const account = await options.store.lock(DEVICE, () => Account.#create(options));
    await account.own();
    return account;
  }

  static async #create({
    store,
    name,
    keys,
    ...options
  }: AccountOptions & { name: string; keys?: DeviceKeys }): Promise<Account> {
    const kept = await store.get<StoredDevice>(DEVICE);
    if (kept?.userId !== undefined) throw new Refused("There is an account here already. Sign out first.");
    const { base } = new Client(options);
    // A try that was interrupted is gone on with: its key may have an account already.
    const isResumed = kept !== undefined && kept.linking === undefined && kept.base === base && !keys;
    const own = isResumed
      ? await DeviceKeys.read(kept.keys)
      : await (keys ?? (await DeviceKeys.generate())).keep(store, { base, name });
    const credential = new DeviceCredential(own.signer, true);
    const client = new Client({ ...options, credential });
    const { userId } = await credential.signIn(client);
    await keepUser(store, own.publicKey, userId, name);
    return new Account(client, store, own, userId, credential);
  }

  /** The account of this device. Undefined: the device has none. No call is made. */
  static async open({ store, ...options }: AccountOptions): Promise<Account | undefined> {
    const device = await store.get<StoredDevice>(DEVICE);
    if (device?.userId === undefined) return undefined;
    const keys = await DeviceKeys.read(device.keys);
    const credential = new DeviceCredential(keys.signer);
    return new Account(new Client({ ...options, credential }), store, keys, device.userId, credential);
  }

  /** What is known of this device's account without a call. */
  static async stored(store: Store): Promise<StoredAccount | undefined> {
    const device = await store.get<StoredDevice>(DEVICE);
    if (device?.userId === undefined) return undefined;
    return { base: device.base, userId: device.userId, publicKey: device.keys.publicKey, name: device.name };
  }

  /** The account's list and content ring. Read anew when they are older than so many milliseconds. */
  async own(maxAge: number = Number.POSITIVE_INFINITY): Promise<Own> {
    if (this.#own && performance.now() - this.#readAt <= maxAge) return this.#own;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  /** Takes a list and a ring that this device has just made. */
  async adopt(own: Own): Promise<void> {
    await rememberList(this.store, this.userId, own.list);
    [this.#own, this.#readAt] = [own, performance.now()];
  }

  /** The fingerprint of the account, for people to compare. */
  async fingerprint(): Promise<string> {
    return fingerprint((await this.own()).list.body.account);
  }

  /** Whether this device may sign lists. */
  async isPrimary(): Promise<boolean> {
    return (await this.own()).list.device(this.keys.publicKey)?.role === "primary";
  }

  /** The token of this device. */
  token(): Promise<Token> {
    return this.credential.signIn(this.client);
  }

  /** Forgets everything that this device knows, its keys among it. Says so to the server by revoking nothing: the device stays
   * listed until a primary device removes it, or `devices.leave` was called before. */
  async forget(): Promise<void> {
    await this.store.clear();
  }

  async #read(): Promise<Own> {
    const { client, store, userId, keys } = this;
    for (let isFirst = true; ; isFirst = false) {
      const known = await knownList(store, userId);
      let sealed;
      try {
        sealed = await client.data(client.http.GET("/v1/devices/content-ring"));
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
    const from = known ? { list: known } : { account: this.keys.publicKey };
    const list = await newestList(this.client, this.userId, from);
    if (!list) throw new Distrust(OLD_LIST);
    return list;
  }

  /** The first list: this device alone, as a primary one. */
  async #begin(): Promise<void> {
    const { publicKey, boxKey, signer } = this.keys;
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
    const name = (await this.store.get<StoredDevice>(DEVICE))?.name ?? "";
    const list = await List.first(change.list, publicKey);
    const names = { [publicKey]: name };
    try {
      await this.client.data(this.client.http.POST("/v1/devices", { body: { ...change, names } }));
    } catch (error) {
      // Another tab of this device was faster. Then its ring is read.
      if (isProblem(error, "DEVICE_LIST_CONFLICT")) return;
      throw error;
    }
    await rememberList(this.store, this.userId, list);
  }
}
