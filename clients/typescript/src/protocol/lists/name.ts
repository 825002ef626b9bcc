// Names of devices and machines. A list has a commitment to each name, so the server that stores the names cannot change one.

import { concat, decodeExact, encode, random, sha256, utf8, utf8Length } from "../bytes.js";
import { HIDDEN } from "../hidden.js";
import type { DeviceList, ListedDevice, Role } from "./list.js";

/** The name of a device, and what opens the commitment in the list. Only the account's own devices are given both. */
export interface DeviceName {
  /** 16 random bytes. */
  salt: string;
  name: string;
}

/** Names by the public keys of their devices, as calls have them. */
export type NamesByKey = Record<string, DeviceName>;

/** Bytes of a name. */
export const MOST_NAME_BYTES = 64;
/** The most characters of a machine's name. Each has one byte. */
const MOST_OF_MACHINE = 63;

/** Hidden characters, and halves of a surrogate pair, which UTF-8 does not have. */
const BAD = new RegExp(`[${HIDDEN}\\p{Cs}]`, "gu");

/** The commitment that an entry has as its `name`. Undefined: the salt is no 16 bytes. */
export async function commitment({ salt, name }: DeviceName): Promise<string | undefined> {
  const bytes = decodeExact(salt, 16);
  return bytes && encode(await sha256(concat(utf8("ensemble-device-name-v1\n"), bytes, utf8(name))));
}

/** Whether a device may have this name. */
export function isName(text: string): boolean {
  const isOfGoodLength = text !== "" && utf8Length(text) <= MOST_NAME_BYTES;
  return isOfGoodLength && text.search(BAD) < 0 && text.normalize("NFC") === text && text.trim() === text;
}

/** The name that is nearest to what a person typed or a computer is called. Undefined: nothing is left of it. */
export function nearestName(text: string, most = MOST_NAME_BYTES): string | undefined {
  let [name, length] = ["", 0];
  for (const letter of text.replace(BAD, "").normalize("NFC").trim()) {
    length += utf8Length(letter);
    if (length > most) break;
    name += letter;
  }
  return name.trimEnd() || undefined;
}

/** Whether a machine may have this name. */
export const isMachineName = (text: string): boolean => /^[a-z0-9][a-z0-9._-]{0,62}$/.test(text);

/** The valid machine name that is nearest to the host's name. */
export function nearestMachineName(text: string, most = MOST_OF_MACHINE): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^[._-]+/, "");
  return name.slice(0, most).replace(/[._-]+$/, "") || "machine";
}

const isNameFor = (role: Role, text: string): boolean => (role === "machine" ? isMachineName(text) : isName(text));

/** The name for a device or a machine that asks for `wanted`, with this number. */
function numbered(role: Role, wanted: string, number: number): string | undefined {
  const end = number === 1 ? "" : `${role === "machine" ? "-" : " "}${number}`;
  if (role === "machine") return nearestMachineName(wanted, MOST_OF_MACHINE - end.length) + end;
  const name = nearestName(wanted, number === 1 ? MOST_NAME_BYTES : MOST_NAME_BYTES - 4);
  return name && name + end;
}

/** Two names are the same when this is. */
export const foldedName = (name: string): string => name.toLowerCase();

/** The names of devices that were checked against a list, by public key. */
export class Names {
  readonly #names: Map<string, DeviceName>;

  /** `lacksSome`: devices of the list have other names, which the server has not given. */
  constructor(
    names: Iterable<readonly [string, DeviceName]> = [],
    readonly lacksSome = false,
  ) {
    this.#names = new Map(names);
  }

  /** Those that open their commitments and are good. Of devices with one name none has it. */
  static async opened(list: Pick<DeviceList, "devices">, given: NamesByKey): Promise<Names> {
    const good: [string, DeviceName][] = [];
    const counts = new Map<string, number>();
    for (const { key, role, name: committed } of list.devices) {
      const name = given[key];
      if (committed === undefined || !name || !isNameFor(role, name.name) || committed !== (await commitment(name))) continue;
      good.push([key, name]);
      counts.set(foldedName(name.name), (counts.get(foldedName(name.name)) ?? 0) + 1);
    }
    const known = new Map(good.filter(([, { name }]) => counts.get(foldedName(name)) === 1));
    return new Names(
      known,
      list.devices.some(({ key, name }) => name !== undefined && !known.has(key)),
    );
  }

  /** The name of the device with this public key. */
  get(key: string): string | undefined {
    return this.#names.get(key)?.name;
  }

  /** Whether they are the names of all devices that have one in the list against which they were checked. */
  areAllOf({ devices }: Pick<DeviceList, "devices">): boolean {
    return devices.every(({ key, name }) => name === undefined || this.#names.has(key));
  }

  /** Whether another device than this one has the name. */
  hasOther(key: string, name: string): boolean {
    return [...this.#names].some(([other, given]) => other !== key && foldedName(given.name) === foldedName(name));
  }

  /** Names a device of a list that is not signed yet, with a number if another one has the name. A device without a name gets
   * no name. None gets one while names are lacking: the server could keep back the name of a device that has this one. */
  async give(device: ListedDevice, wanted: string): Promise<void> {
    const found = this.lacksSome ? undefined : this.#free(device, wanted);
    delete device.name;
    this.#names.delete(device.key);
    if (found === undefined) return;
    const name: DeviceName = { salt: encode(random(16)), name: found };
    const committed = await commitment(name);
    if (committed === undefined) return;
    device.name = committed;
    this.#names.set(device.key, name);
  }

  #free({ key, role }: ListedDevice, wanted: string): string | undefined {
    for (let number = 1; number < 1_000; number++) {
      const name = numbered(role, wanted, number);
      if (name === undefined || !this.hasOther(key, name)) return name;
    }
    return undefined;
  }

  /** What is sent with the next list, which is not signed yet. A device whose name is not known here loses it: the server has not given the
   * one that was signed. */
  forNext(next: Pick<DeviceList, "devices">): NamesByKey {
    const names: NamesByKey = {};
    for (const device of next.devices) {
      const name = this.#names.get(device.key);
      if (!name) delete device.name;
      else if (device.name !== undefined) names[device.key] = name;
    }
    return names;
  }

  /** To keep them. */
  get given(): NamesByKey {
    return Object.fromEntries(this.#names);
  }
}
