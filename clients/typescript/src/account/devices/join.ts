// Linking at the new device: it asks with the address that the first one shows, and is added when a person has typed its digits there.

import { Client, type ClientOptions } from "../../client.js";
import { DeviceCredential } from "../../credential.js";
import { Distrust, isNotFound, isProblem, LinkOver, Refused } from "../../errors.js";
import { LinkCode, type DeviceLinkRequest, type LinkAnswer } from "../../protocol/seal/device-link.js";
import type { Store } from "../../store/store.js";
import type { Opened } from "../context.js";
import { DEVICE, DeviceKeys, keepUser, type StoredDevice } from "../keys.js";
import { newestList, rememberList } from "../lists.js";
import { look } from "./link.js";

/** A linking at the new device: show the digits, then wait until a person has typed them at the first one. */
export interface Joining<A> {
  /** Six digits. */
  digits: string;
  /** Waits until this device is added, and checks everything before it relies on it. */
  finished(signal?: AbortSignal): Promise<A>;
}

export interface JoinOptions extends Omit<ClientOptions, "credential" | "base"> {
  store: Store;
  name: string;
  kind?: "web" | "cli";
}

/** Asks to be added to an account, with the address that its first device shows. After a reload it resumes with the same keys. */
export function joinDevice(address: string, options: JoinOptions): Promise<Joining<Opened>> {
  // Two tabs at once would replace each other's keys.
  return options.store.lock(DEVICE, () => asks(address, options));
}

async function asks(address: string, options: JoinOptions): Promise<Joining<Opened>> {
  const { store, name, kind = "web", ...client } = options;
  const code = LinkCode.fromAddress(address);
  const kept = await store.get<StoredDevice>(DEVICE);
  if (kept?.userId !== undefined) throw new Refused("There is an account here already. Sign out first.");
  const anonymous = new Client({ ...client, base: code.base });
  const isResumed = kept?.linking === code.address;
  // The keys are kept before the server learns of them: a key that is listed and lost cannot be replaced without another device.
  const keys = isResumed
    ? await DeviceKeys.read(kept.keys)
    : await (await DeviceKeys.generate()).keep(store, { base: anonymous.base, name, linking: code.address });
  const called = isResumed ? kept.name : name;
  const request = await code.request({ signer: keys.signer, boxKey: keys.boxKey, name: called.slice(0, 64), kind });
  if (!isResumed || (await look(anonymous, code.id, undefined, 0)).state === "waiting") await ask(anonymous, code.id, request);
  const finished = async (signal?: AbortSignal): Promise<Opened> => {
    const answer = await approved(anonymous, code, signal);
    return joined({ ...client, base: code.base, store }, keys, answer);
  };
  return { digits: await code.digits(request), finished };
}

async function ask(client: Client, id: string, body: DeviceLinkRequest): Promise<void> {
  try {
    await client.call("POST", "/v1/auth/links/{id}/request", { path: { id }, body });
  } catch (error) {
    if (isProblem(error, "CONFLICT")) {
      const { state } = await client.call("GET", "/v1/auth/links/{id}", { path: { id } });
      const isOver = state === "expired" || state === "refused";
      throw new LinkOver(
        isOver
          ? "This link has ended. Begin again on the other device, or type “ensemble open” again on this computer."
          : "This code was used already. If it was not you, end the linking on the other device and begin again.",
      );
    }
    if (isNotFound(error)) throw new LinkOver("The server does not know this code: it is wrong, or older than ten minutes.");
    throw error;
  }
}

async function approved(client: Client, code: LinkCode, signal?: AbortSignal): Promise<LinkAnswer> {
  for (;;) {
    const link = await look(client, code.id, signal);
    if (link.state === "approved" && link.answer) return code.openAnswer(link.answer);
    if (link.state === "refused") throw new LinkOver("The other device refused this one.");
    if (link.state === "expired") throw new LinkOver("The linking was not finished within ten minutes. Begin again.");
  }
}

async function joined(
  { store, ...options }: Omit<ClientOptions, "credential"> & { store: Store },
  keys: DeviceKeys,
  answer: LinkAnswer,
): Promise<Opened> {
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
  return [client, store, keys, userId, credential];
}
