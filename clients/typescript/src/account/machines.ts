// The machines of an account: names, presence and what they offer.

import { Distrust } from "../errors.js";
import { makesKeys } from "../seal/device-list.js";
import { openJson, purposes } from "../seal/ring.js";
import { bindings, openRing } from "../seal/signed-ring.js";
import type { Account } from "./account.js";
import { everHad } from "./lists.js";
import type { components } from "../openapi.js";

export type Machine = components["schemas"]["Machine"];

/** What a machine says of itself. Members that are not known here are kept. */
export type MachineMetadata = { host?: string; os?: string; arch?: string; by?: string } & Record<string, unknown>;

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
    const page = (cursor?: string) => client.data(client.http.GET("/v1/machines", { params: { query: { ...(cursor !== undefined && { cursor }) } } }));
    for await (const { machines } of client.pages(page)) all.push(...machines);
    return all;
  }

  /** The opened metadata of a machine. It has the name by which people choose, so it counts only under a key that a device of the account
   * has made, or the machine itself. */
  async metadata(machine: Machine): Promise<MachineMetadata> {
    const { client, userId } = this.account;
    const { contents, list } = await this.account.own();
    const { ring, signer } = await contents.openWith((pair) => openRing(machine.encryptionKey, pair, bindings.machine(machine.id)));
    const counts = makesKeys(machine.id);
    const entry = list.device(signer);
    // A device that was removed since may have made it.
    const isOwn = (entry && counts(entry)) || (await everHad(client, userId, list.body.account, signer, counts));
    if (!isOwn) throw new Distrust(`The name of machine ${machine.ref} was not given by one of your devices.`);
    return openJson(ring, purposes.machineMetadata(machine.id), machine.metadata);
  }

  /** What its runner reports, when it has reported something. */
  state(machine: Machine): RunnerState | undefined {
    const runner = (machine.activity as { runner?: Partial<RunnerState> } | null | undefined)?.runner;
    if (runner === null || typeof runner !== "object") return undefined;
    const count = (value: unknown): number => (typeof value === "number" ? value : 0);
    const providers = Array.isArray(runner.providers) ? runner.providers.filter(({ provider }) => typeof provider === "string") : [];
    return { capacity: count(runner.capacity), running: count(runner.running), draining: runner.draining === true, providers };
  }

  /** Whether a session can be begun on it from here: it has a key in the account's list. */
  async isListed(id: string): Promise<boolean> {
    return (await this.account.own()).list.machine(id) !== undefined;
  }

  /** Deletes a machine. A primary device also takes its key from the account's list, and gives the sessions that it hosted new keys. */
  async remove(id: string): Promise<void> {
    const { client } = this.account;
    await client.data(client.http.DELETE("/v1/machines/{id}", { params: { path: { id } } }));
    const { list } = await this.account.own(0);
    if (!list.machine(id) || !(await this.account.isPrimary())) return;
    await this.account.sessions.beginRemoval();
    await this.account.devices.change((devices) => devices.filter(({ machineId }) => machineId !== id));
    // It has their keys, and others may write there.
    await this.account.sessions.finishRemoval();
  }
}
