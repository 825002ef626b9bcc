// Linking at the first device: it shows a code, the new one shows six digits, and a person carries both across.

import type { Client } from "../../client.js";
import { Distrust, Refused } from "../../errors.js";
import type { List, ListedDevice, Role } from "../../protocol/lists/list.js";
import type { Names } from "../../protocol/lists/name.js";
import type { DeviceLinkRequest, LinkCode } from "../../protocol/seal/device-link.js";
import type { Context } from "../context.js";
import type { ChangeDevices } from "../keys.js";
import { changeDevices } from "./change.js";
import type { components } from "../../openapi.js";

type DeviceLink = components["schemas"]["DeviceLink"];

/** How long one call waits, in milliseconds. A linking lasts ten minutes. */
const ONE_WAIT = 25_000;
/** How often the digits may be typed. */
const TRIES = 3;

/** A linking at the first device. */
export class Linking {
  constructor(
    private readonly context: Context,
    private readonly code: LinkCode,
    readonly expiresAt: string,
  ) {}

  /** What the new device opens. A secret for ten minutes. */
  get address(): string {
    return this.code.address;
  }

  /** Waits until a device asks. A wrong one ends the linking. */
  async asked(signal?: AbortSignal): Promise<Asking> {
    const { client } = this.context;
    for (;;) {
      const link = await look(client, this.code.id, signal);
      if (link.state === "asked" && link.request) {
        if (await this.code.isGood(link.request)) return new Asking(this.context, this.code, link.request);
        await this.refuse();
        throw new Distrust(
          "A device that had not seen the code answered, or changed what the new device sent. Nothing was added.",
        );
      }
      if (link.state !== "waiting") throw new Refused("The code was not used in time. Start again.");
    }
  }

  /** Ends it without a device. */
  async refuse(): Promise<void> {
    const { client } = this.context;
    await client.call("POST", "/v1/auth/links/{id}/refusal", { path: { id: this.code.id } });
  }
}

/** A device that asks to be added. */
export class Asking {
  #left = TRIES;

  constructor(
    private readonly context: Context,
    private readonly code: LinkCode,
    private readonly request: DeviceLinkRequest,
  ) {}

  /** The kind of device that it claims to be. Show its name only after the digits: it could be chosen to look like them. */
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
      const { client } = this.context;
      await client.call("POST", "/v1/auth/links/{id}/refusal", { path: { id: this.code.id } });
      throw new Refused("The digits were wrong three times. Nothing was added. Begin again.");
    }
    const { publicKey: key, boxKey } = this.request;
    const answered = async (list: List): Promise<Partial<ChangeDevices>> => {
      const answer = { userId: this.context.userId, account: list.body.account, version: list.version, digest: list.digest };
      const { id } = this.code;
      return { link: { id, answer: await this.code.sealAnswer(answer) }, links: [{ id, request: this.request }] };
    };
    const add = async (devices: ListedDevice[], names: Names): Promise<ListedDevice[]> => {
      const entry: ListedDevice = { key, boxKey, role };
      await names.give(entry, this.request.name);
      return [...devices, entry];
    };
    await changeDevices(this.context, add, [], answered);
    return true;
  }
}

/** How a linking stands, after the server has waited for a change. */
export async function look(client: Client, id: string, signal?: AbortSignal, waitMs = ONE_WAIT): Promise<DeviceLink> {
  const params = { path: { id }, query: { waitMs } };
  return client.call("GET", "/v1/auth/links/{id}", { ...params, ...(signal && { signal }) });
}
