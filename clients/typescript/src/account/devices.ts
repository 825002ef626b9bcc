// The devices of an account: shown, linked, renamed, removed; and recovery words.

import { Distrust, isProblem, Refused } from "../errors.js";
import { LinkCode } from "../seal/device-link.js";
import { MOST_DEVICES, signsLists, type List, type ListedDevice, type Role } from "../seal/device-list.js";
import { RecoveryWords } from "../seal/recovery.js";
import type { ContentRing } from "../seal/content-ring.js";
import type { Account, Own } from "./account.js";
import { changeOf, type ChangeDevices } from "./change.js";
import { Linking } from "./linking.js";
import type { Unconfirmed } from "./machines.js";
import type { components } from "../openapi.js";

export type Device = components["schemas"]["Device"];

/** Words that are shown, and not in force yet. */
export interface NewWords {
  /** 24 words. Store them at most until they are confirmed, and sealed: see `sameWords`. */
  words: string[];
  /** Puts them in force. Words from before are worth nothing then. */
  confirm(): Promise<void>;
}

export class Devices {
  constructor(private readonly account: Account) {}

  /** The devices that the checked list has, with their names. */
  async all(): Promise<Device[]> {
    const { client } = this.account;
    const { devices } = await client.data(client.http.GET("/v1/devices"));
    const { list } = await this.account.own(0);
    const isListed = (device: Device): boolean => {
      const entry = list.device(device.publicKey);
      return entry?.role === device.role && entry.boxKey === device.boxKey;
    };
    if (devices.length !== list.body.devices.length || !devices.every(isListed)) {
      throw new Distrust(
        "The server shows other devices than the list that you signed. If it stays so, do not trust this server.",
      );
    }
    return devices;
  }

  async rename(id: string, name: string): Promise<Device> {
    const { client } = this.account;
    return client.data(client.http.PATCH("/v1/devices/{id}", { params: { path: { id } }, body: { name } }));
  }

  /** Whether the account is lost with this device: it has no recovery words and no second primary. */
  async isAlone(): Promise<boolean> {
    const { list } = await this.account.own();
    return list.body.devices.filter(({ role }) => signsLists(role)).length < 2;
  }

  /** New recovery words, for a person to write down. */
  async newWords(): Promise<NewWords> {
    await this.#checkPrimary();
    return this.#notYet(RecoveryWords.generate());
  }

  /** Words that `newWords` has made and that are not confirmed yet, as after a reload. No call is made before they are confirmed. */
  async sameWords(words: readonly string[]): Promise<NewWords> {
    return this.#notYet(await RecoveryWords.parse(words.join(" ")));
  }

  async #notYet(words: RecoveryWords): Promise<NewWords> {
    const confirm = async (): Promise<void> => {
      const [key, box] = [await words.key(), await words.boxPair()];
      const entry: ListedDevice = { key: key.publicKey, boxKey: box.publicKey, role: "recovery" };
      const isReplaced = await this.change((devices) => [...devices.filter(({ role }) => role !== "recovery"), entry], [key]);
      if (isReplaced) await this.account.sessions.afterRemoval();
    };
    return { words: await words.words(), confirm };
  }

  /** Begins to link a device. Its address is for the new one: as a QR code, or typed. */
  async link(): Promise<Linking> {
    await this.#checkPrimary();
    const { client } = this.account;
    const { id, expiresAt } = await client.data(client.http.POST("/v1/auth/links"));
    return new Linking(this.account, LinkCode.generate(client.base, id), expiresAt);
  }

  /** Removes devices. From then on nothing is sealed to them, and sessions that were used lately get new keys at once. Resolves to the
   * machines that have not confirmed it: until they do, a removed device and the server can still command them. */
  async remove(keys: readonly string[], onProgress?: (done: number, of: number) => void): Promise<Unconfirmed[]> {
    await this.#checkPrimary();
    if (keys.includes(this.account.keys.publicKey))
      throw new Refused("This is the device that you use. Sign out here instead.");
    // What a removed device has written last is read before it is removed: nobody relies on its signature afterwards.
    const shared = await this.account.people.shared().catch(() => ({ state: {} }));
    await this.account.sessions.seeTitles();
    await this.account.sessions.beginRemoval();
    await this.change((devices) => devices.filter(({ key }) => !keys.includes(key)));
    // Sessions get their keys whatever becomes of it.
    const [signed] = await Promise.allSettled([this.account.people.signAgain(shared.state)]);
    const confirming = this.account.machines.awaitConfirmed();
    await this.account.sessions.afterRemoval(onProgress);
    if (signed.status === "rejected") {
      throw new Refused("The device was removed, but what your devices share was not kept.", { cause: signed.reason });
    }
    return confirming;
  }

  /** Removes this device from the account and forgets its keys. Only a primary one that is not the last can. */
  async leave(): Promise<void> {
    const own = this.account.keys.publicKey;
    const { list } = await this.account.own(0);
    const isPrimary = list.device(own)?.role === "primary";
    if (isPrimary && list.body.devices.some(({ key, role }) => key !== own && signsLists(role))) {
      await this.change((devices) => devices.filter(({ key }) => key !== own), [], undefined, true);
    }
    await this.account.forget();
  }

  /** Puts the next list on top of the newest one, with a new content epoch when a device that opens contents is gone. True: one is
   * gone. Another device may be faster: then it is done again on top of its list. */
  async change(
    edit: (devices: ListedDevice[]) => ListedDevice[],
    added: Parameters<typeof changeOf>[3] = [],
    more: (list: List) => Promise<Partial<ChangeDevices>> = () => Promise.resolve({}),
    isLast = false,
  ): Promise<boolean> {
    const { client, keys } = this.account;
    for (let tries = 0; ; tries++) {
      const own = await this.account.own(0);
      const body = own.list.successor();
      body.devices = edit(body.devices);
      if (body.devices.length > MOST_DEVICES) throw new Refused(`An account has at most ${MOST_DEVICES} devices. Remove some.`);
      const left = new Set(body.devices.map(({ key }) => key));
      const isOneGone = own.list.openers().some(({ key }) => !left.has(key));
      let contents: ContentRing = own.contents;
      if (isOneGone) {
        contents = contents.next();
        Object.assign(body, { contentEpoch: body.contentEpoch + 1, contentPublicKey: await contents.publicKey() });
      }
      const change = await changeOf(body, contents, keys.signer, added);
      const next: Own = { list: await own.list.next(change.list), contents };
      try {
        await client.data(client.http.POST("/v1/devices", { body: { ...change, ...(await more(next.list)) } }));
      } catch (error) {
        if (!isProblem(error, "DEVICE_LIST_CONFLICT") || tries >= 3) throw error;
        continue;
      }
      if (!isLast) await this.account.adopt(next);
      return isOneGone;
    }
  }

  /** Adds the device of a linking. */
  async add(
    entry: ListedDevice & { role: Role },
    link: (list: List) => Promise<NonNullable<ChangeDevices["link"]>>,
  ): Promise<void> {
    await this.change(
      (devices) => [...devices, entry],
      [],
      async (list) => ({ link: await link(list) }),
    );
  }

  async #checkPrimary(): Promise<void> {
    if (await this.account.isPrimary()) return;
    throw new Refused("This is a linked device, and only a primary one can add and remove devices. Do it on a primary device.");
  }
}
