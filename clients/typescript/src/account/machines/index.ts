// The machines of an account: names, presence and what they offer.

import type { ListedDevice } from "../../protocol/lists/list.js";
import type { DaemonState } from "../../protocol/seal/daemon-state.js";
import { refOf } from "../../refs.js";
import type { Context } from "../context.js";
import { changeDevices } from "../devices/change.js";
import { finishRemoval, seeTitles } from "../devices/remove.js";
import { FRESH } from "../lists.js";
import { called, type Called } from "../names.js";
import { setRemoval } from "../unfinished.js";
import { agree, agreedTo } from "./agreed.js";
import { allMachines, type Machine } from "./find.js";
import { daemonState } from "./daemon-state.js";
import { machineMetadata, type MachineMetadata } from "./keys.js";
import { awaitConfirmed, unconfirmed, type Unconfirmed } from "./seen.js";

/** What a runner reports with its heartbeat, in the clear. The server could say something else. */
export interface RunnerState {
  capacity: number;
  running: number;
  draining: boolean;
  providers: { provider: string; offered: boolean; reason?: string; version?: string; signedIn?: boolean }[];
}

/** The name of a machine. */
export interface CalledMachine extends Called {
  ref: string;
  /** The account's list has it. */
  isListed: boolean;
}

export class Machines {
  constructor(private readonly context: Context) {}

  /** All machines, the newest first. */
  all(): Promise<Machine[]> {
    return allMachines(this.context);
  }

  /** The names of machines that the account's list has and that are not among these, which the server has shown. */
  async hidden(shown: readonly Pick<Machine, "id">[]): Promise<string[]> {
    const { list } = await this.context.own(FRESH);
    const names = await this.context.names();
    const ids = new Set(shown.map(({ id }) => id));
    const isHidden = ({ machineId }: ListedDevice): boolean => machineId !== undefined && !ids.has(machineId);
    return list.body.devices.filter(isHidden).flatMap(({ key }) => names.get(key) ?? []);
  }

  /** What the account's list calls the machine with this id. What the machine or the server says does not count. */
  async called(id: string): Promise<CalledMachine> {
    const ref = await refOf(id);
    // It may have been added a moment ago.
    const { list } = await this.context.own((await this.isListed(id)) ? undefined : FRESH);
    const entry = list.machine(id);
    if (!entry) return { ref, name: null, hasOtherName: false, isListed: false };
    return { ref, ...called(list, entry.key, await this.context.names()), isListed: true };
  }

  /** The opened metadata of a machine. */
  metadata(machine: Machine): Promise<MachineMetadata> {
    return machineMetadata(this.context, machine);
  }

  /** What the machine says that it can do. Undefined: it has not said so under its key in the account's list, or an older text is shown. */
  can(machine: Machine): Promise<DaemonState | undefined> {
    return daemonState(this.context, machine);
  }

  /** What its runner reports, once it has reported. */
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
    return (await this.context.own()).list.machine(id) !== undefined;
  }

  /** Whether a person has agreed that an agent does everything on this machine (without an id: on any) in this directory without asking.
   * Undefined: this device has not used the machine there, and a person is to be asked whether it is the right one. */
  agreed(id: string | undefined, directory: string): Promise<boolean | undefined> {
    return agreedTo(this.context, id, directory);
  }

  /** Remembers that a person has agreed. */
  agree(id: string | undefined, directory: string, everything: boolean): Promise<void> {
    return agree(this.context, id, directory, everything);
  }

  /** The machines that have not confirmed the last removal of a device. */
  unconfirmed(): Promise<Unconfirmed[]> {
    return unconfirmed(this.context);
  }

  /** The same after each machine that was there lately has confirmed, or after 20 s. */
  awaitConfirmed(): Promise<Unconfirmed[]> {
    return awaitConfirmed(this.context);
  }

  /** Deletes a machine. A primary device also takes its key from the account's list, and gives the sessions that it hosted new keys. */
  async remove(id: string): Promise<void> {
    const { client } = this.context;
    await client.call("DELETE", "/v1/machines/{id}", { path: { id } });
    const { list } = await this.context.own(0);
    if (!list.machine(id) || !(await this.context.isPrimary())) return;
    await seeTitles(this.context);
    await setRemoval(this.context.store, true);
    await changeDevices(this.context, (devices) => devices.filter(({ machineId }) => machineId !== id));
    // It has their keys, and others may write there.
    await finishRemoval(this.context);
  }
}
