// The signed list of an account's devices: which list is good, and which one may follow another. A client relies only on lists that
// it has checked itself.

import { decodeExact, digestText, encode, sha256, utf8, utf8Length, type Bytes } from "../bytes.js";
import { Distrust } from "../../errors.js";
import { isSigned, isSigningKey, type Signer } from "../ed25519.js";
import { isBoxKey } from "../hpke.js";
import type { components } from "../../openapi.js";

export type SignedList = components["schemas"]["SignedList"];
export type Role = components["schemas"]["Role"];
/** What a machine says of the list that it obeys. */
export type SeenList = components["schemas"]["SeenList"];

export interface ListedDevice {
  /** Ed25519. */
  key: string;
  /** X25519. */
  boxKey: string;
  role: Role;
  /** Of a runner, and of nothing else. */
  machineId?: string;
  /** The commitment to its name: see `name.ts`. */
  name?: string;
  /** Of a machine: the key of the device that has registered it on its own computer. They are removed together. */
  by?: string;
}

export interface DeviceList {
  account: string;
  version: number;
  prev: string | null;
  created: string;
  contentEpoch: number;
  contentPublicKey: string;
  devices: ListedDevice[];
}

export const MOST_DEVICES = 64;
const MOST_VERSIONS = 10_000;
const MOST_BYTES = 32_768;

export const opensContents = (role: Role): boolean => role !== "machine";
/** Whether devices with this role command, and give sessions and their keys to people. */
export const sharesSessions = (role: Role): boolean => role === "primary" || role === "linked";
/** Whether a device may make keys of a session or of a machine: one of a person, or the machine whose session or key it is. */
export const makesKeys =
  (machine: string | undefined) =>
  ({ role, machineId }: ListedDevice): boolean =>
    sharesSessions(role) || (role === "machine" && machineId !== undefined && machineId === machine);
export const signsLists = (role: Role): boolean => role === "primary" || role === "recovery";

export const listText = (body: string): Bytes => utf8(`ensemble-devices-v1\n${body}`);

/** Signs a list. */
export async function signList(list: DeviceList, signer: Signer): Promise<SignedList> {
  const body = JSON.stringify(list);
  return { body, signer: signer.publicKey, signature: encode(await signer.sign(listText(body))) };
}

/** What the key of a new entry signs, so that no account lists a key that it does not hold. */
export const proofText = (account: string, { key, boxKey, role }: ListedDevice): Bytes =>
  utf8(`ensemble-device-v1\n${account}\n${key}\n${boxKey}\n${role}`);

/** What the key of a machine signs to say which list it obeys. */
export const seenText = (account: string, machine: string, version: number, digest: string): Bytes =>
  utf8(`ensemble-list-seen-v1\n${account}\n${machine}\n${version}\n${digest}`);

/** The newest list in which a device is missing that could command or sign lists, and what has to know of it. */
export interface Removal {
  /** The version of that list, which is that of the first digest. */
  version: number;
  /** The digests of that list and of those that have followed it. A machine that follows a branch of the removed device names another one. */
  digests: string[];
  /** The keys of the machines in it, which obeyed the device. */
  machines: string[];
  /** Only recovery words were replaced. */
  isOfWords: boolean;
}

/** Digests that are kept. A machine that has named none of these newest has to confirm it again. */
const MOST_DIGESTS = 256;

/** A list whose signature, form and origin were checked. */
export class List {
  private constructor(
    readonly signed: SignedList,
    readonly body: Readonly<DeviceList>,
    /** SHA-256 of the body, base64url. */
    readonly digest: string,
    /** The last removal of a device that could command or sign lists, up to this list, if one is known. */
    readonly removal?: Removal,
  ) {}

  /** Version 1 of the account with this public key. */
  static async first(signed: SignedList, account: string): Promise<List> {
    const list = await List.remembered(signed);
    const { body } = list;
    if (body.account !== account) bad("is of another account");
    if (body.version !== 1) bad(`has version ${body.version}, and the first one is 1`);
    if (signed.signer !== account || list.device(account)?.role !== "primary" || body.prev !== null) {
      bad("is the first one, and the account's first device has not signed it as a primary one");
    }
    if (body.contentEpoch !== 1) bad("is the first one, and its content epoch is not 1");
    if (list.#madeByNone()) bad("names a device as the computer of a machine that is none of the account");
    return list;
  }

  /** A list that was checked before and kept in a safe place: its form and signature only. */
  static async remembered(signed: SignedList, removal?: Removal): Promise<List> {
    const body = read(signed);
    if (!(await isSigned(signed.signer, listText(signed.body), signed.signature)))
      bad("is not signed by the key that it names");
    if (!body.devices.some(({ role }) => signsLists(role))) bad("leaves no device that can sign the next one");
    const { body: text, signer, signature } = signed;
    return new List({ body: text, signer, signature }, body, await digestText(text), removal);
  }

  /** The version after this one. */
  async next(signed: SignedList): Promise<List> {
    const list = await List.remembered(signed);
    const [old, now] = [this.body, list.body];
    if (now.account !== old.account) bad("is of another account");
    if (now.version !== old.version + 1) bad(`has version ${now.version}, and the next one is ${old.version + 1}`);
    if (now.prev !== this.digest) bad("does not follow the previous one: another one was made in between");
    const signer = this.device(signed.signer);
    if (!signer || !signsLists(signer.role)) bad("is signed by a key that may not sign lists of this account");
    if (list.#madeByNone(this)) bad("names a device as the computer of a machine that is none of the account");
    const opens = new Set(list.openers().map(({ key, boxKey }) => `${key} ${boxKey}`));
    const isOneGone = this.openers().some(({ key, boxKey }) => !opens.has(`${key} ${boxKey}`));
    const hasNewKey = now.contentPublicKey !== old.contentPublicKey;
    const step = now.contentEpoch - old.contentEpoch;
    if (step !== 0 && step !== 1) bad("skips a content epoch");
    if (step === 0 && isOneGone) bad("has the same content epoch, although a device that could open contents is gone");
    if (step === 0 && hasNewKey) bad("has another content key in the same epoch");
    if (step === 1 && !hasNewKey) bad("has the same content key in another epoch");
    return new List(list.signed, now, list.digest, this.#removalIn(list));
  }

  /** The body of the version after this one, with nothing changed yet. */
  successor(created: Date = new Date()): DeviceList {
    const devices = this.body.devices.map((device) => ({ ...device }));
    return { ...this.body, version: this.version + 1, prev: this.digest, created: created.toISOString(), devices };
  }

  get version(): number {
    return this.body.version;
  }

  device(key: string): ListedDevice | undefined {
    return this.body.devices.find((device) => device.key === key);
  }

  machine(id: string): ListedDevice | undefined {
    return this.body.devices.find(({ role, machineId }) => role === "machine" && machineId === id);
  }

  /** The devices to which the content ring is sealed. */
  openers(): ListedDevice[] {
    return this.body.devices.filter(({ role }) => opensContents(role));
  }

  /** Whether the `by` of a machine is no device of a person, in this list or the one before, and was not there before. */
  #madeByNone(before?: List): boolean {
    return this.body.devices.some(
      ({ key, by }) =>
        by !== undefined && before?.device(key)?.by !== by && !this.commands(by) && before?.commands(by) !== true,
    );
  }

  /** What is known of removals in the list after this one. */
  #removalIn(next: List): Removal | undefined {
    const gone = this.body.devices.filter(({ key, role }) => role !== "machine" && !next.device(key));
    const before = this.removal;
    if (gone.length === 0) {
      if (!before) return undefined;
      const digests = [...before.digests, next.digest];
      const surplus = Math.max(0, digests.length - MOST_DIGESTS);
      return { ...before, version: before.version + surplus, digests: digests.slice(surplus) };
    }
    const machines = next.body.devices.filter(({ role }) => role === "machine").map(({ key }) => key);
    const isOfWords = gone.every(({ role }) => role === "recovery") && (before === undefined || before.isOfWords);
    return { version: next.version, digests: [next.digest], machines, isOfWords };
  }

  /** The machines of this list that obeyed a device when it was removed, and have not confirmed that they know of it. `seen` is what the
   * server says for a machine. */
  async unconfirmed(seen: (machine: string) => SeenList | null | undefined): Promise<string[]> {
    const { removal } = this;
    if (!removal) return [];
    const open: string[] = [];
    for (const { key, machineId } of this.body.devices) {
      if (machineId === undefined || !removal.machines.includes(key)) continue;
      const said = seen(machineId);
      // The list of the removal, or one that has followed it. One that is newer than the list that is known here is read first.
      const isOurs = said && said.digest === removal.digests[said.version - removal.version];
      if (!isOurs || !(await this.#hasSigned(key, machineId, said))) open.push(machineId);
    }
    return open;
  }

  #hasSigned(key: string, machine: string, { version, digest, sig }: SeenList): Promise<boolean> {
    return isSigned(key, seenText(this.body.account, machine, version, digest), sig);
  }

  /** Whether the key may command and share for the account. */
  commands(key: string): boolean {
    const device = this.device(key);
    return device !== undefined && sharesSessions(device.role);
  }
}

/** SHA-256 of an account's public key, base64url, as `access` names it. */
export async function accountDigest(key: string): Promise<string> {
  const bytes = decodeExact(key, 32);
  if (!bytes) throw new Distrust("This is no account key.");
  return encode(await sha256(bytes));
}

/** The fingerprint of an account's public key, for people to compare: ten bytes of its SHA-256 in groups. */
export async function fingerprint(key: string): Promise<string> {
  const digest = decodeExact(await accountDigest(key), 32) ?? new Uint8Array();
  const hex = Array.from(digest.subarray(0, 10), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.match(/.{4}/g)?.join("-") ?? "";
}

function bad(what: string): never {
  throw new Distrust(`The device list ${what}. Do not trust this server.`);
}

function read(signed: SignedList): DeviceList {
  if (typeof signed.body !== "string" || utf8Length(signed.body) > MOST_BYTES) bad("is too long");
  let list: DeviceList;
  try {
    list = JSON.parse(signed.body) as DeviceList;
  } catch {
    return bad("is no JSON");
  }
  if (list === null || typeof list !== "object" || Array.isArray(list)) bad("is no object");
  const isWhole = (value: unknown, least: number, most: number): boolean =>
    Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
  list.prev ??= null;
  if (!isSigningKey(list.account)) bad("has no good account key");
  if (!isWhole(list.version, 1, MOST_VERSIONS)) bad("has no version of 1 to 10,000");
  if (list.prev !== null && !decodeExact(list.prev, 32)) bad("names no version before it");
  if (!isWhole(list.contentEpoch, 0, 2 ** 32 - 1) || !isBoxKey(list.contentPublicKey)) bad("has no good content key");
  if (typeof list.created !== "string" || Number.isNaN(Date.parse(list.created))) bad("says no time");
  if (!Array.isArray(list.devices) || !isWhole(list.devices.length, 1, MOST_DEVICES)) bad("has not 1 to 64 entries");
  const [keys, machines] = [new Set<string>(), new Set<string>()];
  let recoveries = 0;
  for (const device of list.devices) {
    if (!isSigningKey(device?.key) || !isBoxKey(device.boxKey)) bad("has an entry without good keys");
    if (!["primary", "linked", "machine", "recovery"].includes(device.role)) bad("has a role that is not known");
    if (keys.has(device.key)) bad("has a key twice");
    keys.add(device.key);
    if (keys.has(device.boxKey)) bad("has a key twice");
    keys.add(device.boxKey);
    if (device.role === "recovery" && ++recoveries > 1) bad("has more than one recovery entry");
    const isMachine = typeof device.machineId === "string" && device.machineId !== "";
    if ((device.role === "machine") !== isMachine) bad("has a machine that is none");
    if ((device.by ?? undefined) === undefined) delete device.by;
    else if (!isMachine || !isSigningKey(device.by)) bad("names a computer where there is no machine");
    if (isMachine && machines.size === machines.add(device.machineId ?? "").size) bad("has a machine twice");
    if ((device.name ?? undefined) === undefined) delete device.name;
    else if (!decodeExact(device.name, 32)) bad("has a name that is no SHA-256");
  }
  return list;
}
