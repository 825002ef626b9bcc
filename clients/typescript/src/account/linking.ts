// Linking: the first device shows a code, the new one shows six digits, and a person carries both across.

import { Client, type ClientOptions } from "../client.js";
import { DeviceCredential } from "../credential.js";
import { Distrust, isNotFound, isProblem, Refused } from "../errors.js";
import { LinkCode, type DeviceLinkRequest, type LinkAnswer } from "../seal/device-link.js";
import type { Role } from "../seal/device-list.js";
import type { Store } from "../store/store.js";
import { Account } from "./account.js";
import { DEVICE, DeviceKeys, keepUser, type StoredDevice } from "./keys.js";
import { newestList, rememberList } from "./lists.js";
import type { components } from "../openapi.js";

type DeviceLink = components["schemas"]["DeviceLink"];

/** One call waits so long, in milliseconds. A linking lasts ten minutes. */
const ONE_WAIT = 25_000;
/** How often the digits may be typed. */
const TRIES = 3;

/** A linking at the first device. */
export class Linking {
  constructor(
    private readonly account: Account,
    private readonly code: LinkCode,
    readonly expiresAt: string,
  ) {}

  /** What the new device opens. A secret for ten minutes. */
  get address(): string {
    return this.code.address;
  }

  /** Waits until a device asks. A wrong one ends the linking. */
  async asked(signal?: AbortSignal): Promise<Asking> {
    const { client } = this.account;
    for (;;) {
      const link = await look(client, this.code.id, signal);
      if (link.state === "asked" && link.request) {
        if (await this.code.isGood(link.request)) return new Asking(this.account, this.code, link.request);
        await this.refuse();
        throw new Distrust(
          "Somebody answered who had not seen the code, or changed what the new device sent. Nothing was added.",
        );
      }
      if (link.state !== "waiting") throw new Refused("Nobody used the code in time. Begin again.");
    }
  }

  /** Ends it without a device. */
  async refuse(): Promise<void> {
    const { client } = this.account;
    await client.data(client.http.POST("/v1/auth/links/{id}/refusal", { params: { path: { id: this.code.id } } }));
  }
}

/** A device that asks to be added. */
export class Asking {
  #left = TRIES;

  constructor(
    private readonly account: Account,
    private readonly code: LinkCode,
    private readonly request: DeviceLinkRequest,
  ) {}

  /** What kind of device it says it is. Show its name only after the digits: it could be chosen to look like them. */
  get kind(): DeviceLinkRequest["kind"] {
    return this.request.kind;
  }

  get name(): string {
    return this.request.name;
  }

  /** Adds it, if these are the digits that it shows. False: they are not; after three wrong tries the linking ends. */
  async approve(digits: string, role: Exclude<Role, "machine" | "recovery">): Promise<boolean> {
    if (this.#left <= 0) throw new Refused("The digits were wrong three times. Begin again.");
    if (digits.replace(/\D/g, "") !== (await this.code.digits(this.request))) {
      if (--this.#left > 0) return false;
      const { client } = this.account;
      await client.data(client.http.POST("/v1/auth/links/{id}/refusal", { params: { path: { id: this.code.id } } }));
      throw new Refused("The digits were wrong three times. Nothing was added. Begin again.");
    }
    const { publicKey: key, boxKey } = this.request;
    await this.account.devices.add({ key, boxKey, role }, async (list) => {
      const answer = { userId: this.account.userId, account: list.body.account, version: list.version, digest: list.digest };
      return { id: this.code.id, answer: await this.code.sealAnswer(answer) };
    });
    return true;
  }
}

/** A linking at the new device: show the digits, then wait until a person has typed them at the first one. */
export interface Joining {
  /** Six digits. */
  digits: string;
  /** Waits until this device is added, and checks everything before it relies on it. */
  finished(signal?: AbortSignal): Promise<Account>;
}

export interface JoinOptions extends Omit<ClientOptions, "credential" | "base"> {
  store: Store;
  name: string;
  kind?: "web" | "cli";
}

/** Asks to be added to an account, with the address that its first device shows. After a reload it goes on with the same keys. */
export function join(address: string, options: JoinOptions): Promise<Joining> {
  // Two tabs at once would replace each other's keys.
  return options.store.lock(DEVICE, () => asks(address, options));
}

async function asks(address: string, options: JoinOptions): Promise<Joining> {
  const { store, name, kind = "web", ...client } = options;
  const code = LinkCode.fromAddress(address);
  const kept = await store.get<StoredDevice>(DEVICE);
  if (kept?.userId !== undefined) throw new Refused("There is an account here already. Sign out first.");
  const anonymous = new Client({ ...client, base: code.base });
  const isResumed = kept?.linking === code.address;
  // The keys are kept before the server learns of them: a key that is listed and lost cannot be replaced by itself.
  const keys = isResumed
    ? await DeviceKeys.read(kept.keys)
    : await (await DeviceKeys.generate()).keep(store, { base: anonymous.base, name, linking: code.address });
  const called = isResumed ? kept.name : name;
  const request = await code.request({ signer: keys.signer, boxKey: keys.boxKey, name: called.slice(0, 64), kind });
  if (!isResumed || (await look(anonymous, code.id, undefined, 0)).state === "waiting") await ask(anonymous, code.id, request);
  const finished = async (signal?: AbortSignal): Promise<Account> => {
    const answer = await approved(anonymous, code, signal);
    return joined({ ...client, base: code.base, store }, keys, answer);
  };
  return { digits: await code.digits(request), finished };
}

/** The address of a linking that a reload has interrupted. */
export const unfinishedLinking = async (store: Store): Promise<string | undefined> => {
  const device = await store.get<StoredDevice>(DEVICE);
  return device?.userId === undefined ? device?.linking : undefined;
};

async function ask(client: Client, id: string, body: DeviceLinkRequest): Promise<void> {
  try {
    await client.data(client.http.POST("/v1/auth/links/{id}/request", { params: { path: { id } }, body }));
  } catch (error) {
    if (isProblem(error, "CONFLICT")) {
      throw new Refused("This code was used already. If it was not you, end the linking on the other device and begin again.");
    }
    if (isNotFound(error)) throw new Refused("The server does not know this code: it is wrong, or older than ten minutes.");
    throw error;
  }
}

async function approved(client: Client, code: LinkCode, signal?: AbortSignal): Promise<LinkAnswer> {
  for (;;) {
    const link = await look(client, code.id, signal);
    if (link.state === "approved" && link.answer) return code.openAnswer(link.answer);
    if (link.state === "refused") throw new Refused("The other device refused this one.");
    if (link.state === "expired") throw new Refused("The linking was not finished within ten minutes. Begin again.");
  }
}

async function joined(
  { store, ...options }: Omit<ClientOptions, "credential"> & { store: Store },
  keys: DeviceKeys,
  answer: LinkAnswer,
): Promise<Account> {
  const credential = new DeviceCredential(keys.signer);
  const client = new Client({ ...options, credential });
  const { userId } = await credential.signIn(client);
  const { account, version, digest } = answer;
  const list = await newestList(client, answer.userId, { account, version, digest });
  const entry = list?.device(keys.publicKey);
  if (
    !list ||
    userId !== answer.userId ||
    list.version < version ||
    entry?.boxKey !== keys.boxKey ||
    entry.role === "machine"
  ) {
    throw new Distrust(
      "The server shows other devices than the device that added this one. Nothing was kept. Do not trust it.",
    );
  }
  await rememberList(store, userId, list);
  await store.lock(DEVICE, () => keepUser(store, keys.publicKey, userId));
  const made = new Account(client, store, keys, userId, credential);
  await made.own();
  return made;
}

async function look(client: Client, id: string, signal?: AbortSignal, waitMs = ONE_WAIT): Promise<DeviceLink> {
  const params = { path: { id }, query: { waitMs } };
  return client.data(client.http.GET("/v1/auth/links/{id}", { params, ...(signal && { signal }) }));
}
