// The devices of an account: shown, linked, renamed, removed; and recovery words.

import { Distrust, Refused } from "../../errors.js";
import type { Signer } from "../../protocol/ed25519.js";
import { signsLists, type ListedDevice } from "../../protocol/lists/list.js";
import { isMachineName, nearestName } from "../../protocol/lists/name.js";
import { LinkCode } from "../../protocol/seal/device-link.js";
import { RecoveryWords } from "../../protocol/seal/recovery.js";
import type { Context } from "../context.js";
import { called, namesIn, type Called } from "../names.js";
import { changeDevices, checkPrimary, type Edit } from "./change.js";
import { Linking } from "./link.js";
import { afterRemoval, removeDevices, type Removed } from "./remove.js";
import type { components } from "../../openapi.js";

type Shown = components["schemas"]["Device"];
/** `by`: for a machine, the public key of its computer's device, as the list has it. */
export type Device = Omit<Shown, "name" | "nameSalt"> & Called & Pick<ListedDevice, "by">;

/** Words that are shown, and not in force yet. */
export interface NewWords {
  /** 24 words. Store them at most until they are confirmed, and sealed: see `sameWords`. */
  words: string[];
  /** Puts them in force. Earlier words stop working. */
  confirm(): Promise<void>;
}

export class Devices {
  constructor(private readonly context: Context) {}

  /** The devices that the checked list has, with their names. */
  async all(): Promise<Device[]> {
    const { client } = this.context;
    for (let isLast = false; ; isLast = true) {
      const { devices } = await client.call("GET", "/v1/devices");
      const { list } = await this.context.own(0);
      const isListed = ({ publicKey, role, boxKey }: Shown): boolean => {
        const entry = list.device(publicKey);
        return entry?.role === role && entry.boxKey === boxKey;
      };
      const isSame = devices.length === list.body.devices.length && devices.every(isListed);
      const names = await namesIn(this.context, list, devices);
      // A change may have been made between the two calls.
      if (!isLast && !(isSame && names.areAllOf(list.body))) continue;
      if (!isSame) {
        throw new Distrust(
          "The server shows other devices than the list that you signed. If it stays so, do not trust this server.",
        );
      }
      return devices.map(({ name: _given, nameSalt: _salt, machineId: _said, ...device }) => {
        const { machineId, by } = list.device(device.publicKey) ?? {};
        const ofMachine = { ...(machineId !== undefined && { machineId }), ...(by !== undefined && { by }) };
        return { ...device, ...ofMachine, ...called(list, device.publicKey, names) };
      });
    }
  }

  /** Gives the device or machine with this public key a new name, in the next list. */
  async rename(key: string, name: string): Promise<void> {
    await checkPrimary(this.context);
    await this.change(async (devices, names) => {
      const device = devices.find((one) => one.key === key);
      if (!device) throw new Refused("This device was removed from your account.");
      const wanted = wantedName(device, name);
      if (names.lacksSome) throw new Refused("The server keeps back names of your devices. If it stays so, do not trust it.");
      if (names.hasOther(key, wanted)) throw new Refused(`Another device is called ${wanted}. Choose another name.`);
      await names.give(device, wanted);
      return devices;
    });
  }

  /** Whether the account is lost with this device: it has no recovery words and no second primary. */
  async isAlone(): Promise<boolean> {
    const { list } = await this.context.own();
    return list.body.devices.filter(({ role }) => signsLists(role)).length < 2;
  }

  /** New recovery words, for a person to write down. */
  async newWords(): Promise<NewWords> {
    await checkPrimary(this.context);
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
      if (isReplaced) await afterRemoval(this.context);
    };
    return { words: await words.words(), confirm };
  }

  /** Begins to link a device. Its address is for the new one: as a QR code, or typed. */
  async link(): Promise<Linking> {
    await checkPrimary(this.context);
    const { client } = this.context;
    const { id, expiresAt } = await client.call("POST", "/v1/auth/links");
    return new Linking(this.context, LinkCode.generate(client.base, id), expiresAt);
  }

  /** Removes devices. From then on nothing is sealed to them, and sessions that were used lately get new keys at once. Resolves to what is
   * still open. */
  remove(keys: readonly string[], onProgress?: (done: number, of: number) => void): Promise<Removed> {
    return removeDevices(this.context, keys, onProgress);
  }

  /** Removes this device from the account and forgets its keys. Only a primary one that is not the last can. */
  async leave(): Promise<void> {
    const own = this.context.keys.publicKey;
    const { list } = await this.context.own(0);
    const isPrimary = list.device(own)?.role === "primary";
    if (isPrimary && list.body.devices.some(({ key, role }) => key !== own && signsLists(role))) {
      await changeDevices(this.context, (devices) => devices.filter(({ key }) => key !== own), [], undefined, true);
    }
    await this.context.forget();
  }

  /** Puts the next list on top of the newest one. True: a device that opens contents is gone. */
  change(edit: Edit, added?: readonly Signer[]): Promise<boolean> {
    return changeDevices(this.context, edit, added);
  }
}

/** Checks the name that a person has typed for a device or a machine. */
function wantedName({ role }: ListedDevice, typed: string): string {
  if (role === "recovery") throw new Refused("Recovery words have no name.");
  const wanted = role === "machine" ? typed.trim() : nearestName(typed);
  if (wanted === undefined) throw new Refused("The name is empty. Type at least one visible character.");
  if (role === "machine" && !isMachineName(wanted)) {
    throw new Refused(
      "A machine's name has 1 to 63 lower-case letters, digits, dots, hyphens and underscores, and begins with a letter or a digit.",
    );
  }
  return wanted;
}
