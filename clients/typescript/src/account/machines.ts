// The machines of an account: names, presence and what they offer.

import { Distrust } from "../errors.js";
import { followHints } from "../streams.js";
import { makesKeys } from "../seal/device-list.js";
import { KeyRing, openJson, purposes, sealJson } from "../seal/ring.js";
import { bindings, openRing, sealRing } from "../seal/signed-ring.js";
import type { Account } from "./account.js";
import { everHad } from "./lists.js";
import type { components } from "../openapi.js";

export type Machine = components["schemas"]["Machine"];

/** What a machine says of itself. Members that are not known here are kept. */
export type MachineMetadata = { host?: string; os?: string; arch?: string; by?: string } & Record<string, unknown>;

/** A machine that may still obey a device that was removed. */
export interface Unconfirmed {
  id: string;
  /** The server says that it is there, or was within the last hour. */
  wasThere: boolean;
}

/** A machine that is there confirms a removal within this time. A machine that was there lately is waited for. In milliseconds. */
const CONFIRMS_WITHIN = 20_000;
const LATELY = 3_600_000;

/** What a runner reports with its heartbeat, in the clear. The server could say something else. */
export interface RunnerState {
  capacity: number;
  running: number;
  draining: boolean;
  providers: { provider: string; offered: boolean; reason?: string; version?: string; signedIn?: boolean }[];
}

export class Machines {
  constructor(private readonly account: Account) {}

  /** All machines, the newest first. */
  async all(): Promise<Machine[]> {
    const { client } = this.account;
    const all: Machine[] = [];
    const page = (cursor?: string) =>
      client.data(client.http.GET("/v1/machines", { params: { query: { ...(cursor !== undefined && { cursor }) } } }));
    for await (const { machines } of client.pages(page)) all.push(...machines);
    return all;
  }

  /** The opened metadata of a machine. It has the name by which people choose, so it counts only under a key that a device of the account
   * has made, or the machine itself. */
  async metadata(machine: Machine): Promise<MachineMetadata> {
    const { client, userId } = this.account;
    const { contents, list } = await this.account.own();
    const { ring, signer } = await contents.openWith((pair) =>
      openRing(machine.encryptionKey, pair, bindings.machine(machine.id)),
    );
    const counts = makesKeys(machine.id);
    const entry = list.device(signer);
    // A device that was removed since may have made it.
    const isOwn = (entry && counts(entry)) || (await everHad(client, userId, list.body.account, signer, counts));
    if (!isOwn) throw new Distrust(`The name of machine ${machine.ref} was not given by one of your devices.`);
    return openJson(ring, purposes.machineMetadata(machine.id), machine.metadata);
  }

  /** Gives machines whose keys are from before the newest content key new ones: a removed device would read from a copy of the database
   * what they are called. */
  async renewKeys(): Promise<void> {
    const { client, keys } = this.account;
    const { list } = await this.account.own();
    const { contentEpoch, contentPublicKey } = list.body;
    for (const machine of await this.all()) {
      if (machine.contentEpoch === contentEpoch) continue;
      const metadata = await this.metadata(machine).catch(() => undefined);
      if (!metadata) continue;
      const ring = KeyRing.generate();
      const body = {
        metadata: await sealJson(ring, purposes.machineMetadata(machine.id), metadata),
        encryptionKey: await sealRing(ring, contentPublicKey, bindings.machine(machine.id), keys.signer),
        contentEpoch,
        expectedMetadataVersion: machine.metadataVersion,
      };
      // Another device may be faster.
      await client
        .data(client.http.PATCH("/v1/machines/{id}", { params: { path: { id: machine.id } }, body }))
        .catch(() => undefined);
    }
  }

  /** What its runner reports, when it has reported something. */
  state(machine: Machine): RunnerState | undefined {
    const runner = (machine.activity as { runner?: Partial<RunnerState> } | null | undefined)?.runner;
    if (runner === null || typeof runner !== "object") return undefined;
    const count = (value: unknown): number => (typeof value === "number" ? value : 0);
    const providers = Array.isArray(runner.providers)
      ? runner.providers.filter(({ provider }) => typeof provider === "string")
      : [];
    return { capacity: count(runner.capacity), running: count(runner.running), draining: runner.draining === true, providers };
  }

  /** Whether a session can be begun on it from here: it has a key in the account's list. */
  async isListed(id: string): Promise<boolean> {
    return (await this.account.own()).list.machine(id) !== undefined;
  }

  /** The machines that have not confirmed the last removal of a device. */
  async unconfirmed(): Promise<Unconfirmed[]> {
    let { list } = await this.account.own();
    if ((await list.unconfirmed(() => undefined)).length === 0) return [];
    const all = new Map((await this.all()).map((machine) => [machine.id, machine]));
    // Another device may have changed the list since, and the machine was faster.
    if ([...all.values()].some(({ seen }) => (seen?.version ?? 0) > list.version)) ({ list } = await this.account.own(0));
    const wasThere = ({ online, lastActiveAt, seen }: Machine): boolean => {
      // A machine without a runner sends no heartbeat. It says which list it obeys when it begins a session.
      const knewLast = seen !== null && seen !== undefined && seen.version + 1 >= list.version;
      return online || (lastActiveAt ? Date.now() - Date.parse(lastActiveAt) < LATELY : knewLast);
    };
    const open = await list.unconfirmed((id) => all.get(id)?.seen);
    return open.map((id) => {
      const machine = all.get(id);
      return { id, wasThere: machine !== undefined && wasThere(machine) };
    });
  }

  /** The same after each machine that was there lately has confirmed, or after 20 s. What cannot be found out is not confirmed. */
  async awaitConfirmed(): Promise<Unconfirmed[]> {
    const signal = AbortSignal.timeout(CONFIRMS_WITHIN);
    const { list } = await this.account.own();
    let open = (await list.unconfirmed(() => undefined)).map((id): Unconfirmed => ({ id, wasThere: true }));
    try {
      open = await this.unconfirmed();
      if (!open.some(({ wasThere }) => wasThere)) return open;
      // The first hint is `all`.
      for await (const { kind } of followHints(this.account.client, { signal })) {
        if (kind !== "machine" && kind !== "all") continue;
        open = await this.unconfirmed();
        if (!open.some(({ wasThere }) => wasThere)) break;
      }
    } catch {
      // The last that is known stays.
    }
    return open;
  }

  /** Deletes a machine. A primary device also takes its key from the account's list, and gives the sessions that it hosted new keys. */
  async remove(id: string): Promise<void> {
    const { client } = this.account;
    await client.data(client.http.DELETE("/v1/machines/{id}", { params: { path: { id } } }));
    const { list } = await this.account.own(0);
    if (!list.machine(id) || !(await this.account.isPrimary())) return;
    await this.account.sessions.seeTitles();
    await this.account.sessions.beginRemoval();
    await this.account.devices.change((devices) => devices.filter(({ machineId }) => machineId !== id));
    // It has their keys, and others may write there.
    await this.account.sessions.finishRemoval();
  }
}
