// An account on this device, with its parts: created, opened, joined or recovered.

import { Client } from "../client.js";
import { DeviceCredential } from "../credential.js";
import { Refused } from "../errors.js";
import type { Admission } from "../protocol/seal/invite.js";
import type { Store } from "../store/store.js";
import { Context, type AccountOptions, type Opened } from "./context.js";
import { Devices } from "./devices/index.js";
import type { JoinOptions, Joining } from "./devices/join.js";
import type { Found } from "./devices/recover.js";
import { afterRemoval, seeTitles } from "./devices/remove.js";
import { DEVICE, DeviceKeys, keepUser, type StoredDevice } from "./keys.js";
import { Machines } from "./machines/index.js";
import { Sessions } from "./sessions/index.js";

/** What is known without asking the server. */
export interface StoredAccount {
  base: string;
  userId: string;
  /** Of this device. */
  publicKey: string;
  name: string;
}

/** `invite`: what lets it be made where that needs an invitation. */
type NewAccount = AccountOptions & { name: string; keys?: DeviceKeys; invite?: Admission };

export class Account extends Context {
  readonly devices: Devices;
  readonly machines: Machines;
  readonly sessions: Sessions;

  constructor(...opened: Opened) {
    super(...opened);
    this.devices = new Devices(this);
    this.machines = new Machines(this);
    this.sessions = new Sessions(this);
  }

  /** Makes a new account with this device as its first one. `name` is for the list of devices. */
  static async create(options: NewAccount): Promise<Account> {
    // Two tabs at once would replace each other's keys.
    const account = await options.store.lock(DEVICE, () => Account.#create(options));
    await account.own();
    return account;
  }

  static async #create({ store, name, keys, invite, ...options }: NewAccount): Promise<Account> {
    const kept = await store.get<StoredDevice>(DEVICE);
    if (kept?.userId !== undefined) throw new Refused("There is an account here already. Sign out first.");
    const { base } = new Client(options);
    // An interrupted attempt is resumed: its key may have an account already.
    const isResumed = kept !== undefined && kept.linking === undefined && kept.base === base && !keys;
    const own = isResumed
      ? await DeviceKeys.read(kept.keys)
      : await (keys ?? (await DeviceKeys.generate())).keep(store, { base, name });
    const credential = new DeviceCredential(own.signer, true, invite);
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
}

/** Asks to be added to an account, with the address that its first device shows. After a reload it resumes with the same keys. */
export async function join(address: string, options: JoinOptions): Promise<Joining<Account>> {
  // Few programs need it, so it is loaded then.
  const { joinDevice } = await import("./devices/join.js");
  const { digits, finished } = await joinDevice(address, options);
  const opened = async (signal?: AbortSignal): Promise<Account> => {
    const account = new Account(...(await finished(signal)));
    await account.own();
    return account;
  };
  return { digits, finished: opened };
}

/** The account that recovery words belong to. */
export interface Recovering extends Found {
  /** Makes this device a primary one, and removes those that are lost. */
  finish(lost?: readonly string[]): Promise<Account>;
}

/** Finds the account of the words. A wrong word is named before anything is sent. */
export async function recover(typed: string, options: AccountOptions & { name: string }): Promise<Recovering> {
  const { findAccount } = await import("./devices/recover.js");
  const { list, listed, ...found } = await findAccount(typed, options);
  const finish = async (lost: readonly string[] = []): Promise<Account> => {
    const isOneGone = await listed(lost);
    const opened = await Account.open(options);
    if (!opened) throw new Refused("This browser cannot keep keys.");
    await opened.own();
    // This device knows no title yet.
    if (isOneGone) await seeTitles(opened, list);
    if (isOneGone) await afterRemoval(opened);
    return opened;
  };
  return { ...found, finish };
}
