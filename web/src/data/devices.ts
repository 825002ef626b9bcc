/** The devices of the account, checked against the list that was signed. */
import type { Linking, NewWords, Removed } from "@ensemble/client/account";
import { deviceName, machineName } from "../base/words.ts";
import { notSearched } from "./notice-text.ts";
import { mine } from "./account.ts";
import { confirmationsChanged } from "./machines.ts";

export interface DeviceRow {
  key: string;
  /** Its name, or what it is. */
  name: string;
  /** Of a device without a name: nothing. */
  given: string;
  kind: string;
  role: string;
  /** Of a machine. */
  ref: string | undefined;
  /** Of a machine: the key of its computer's device. Both are removed together. */
  by: string | undefined;
  current: boolean;
  lastSeenAt: string | undefined;
}

const KINDS: Record<string, string> = { cli: "A terminal", web: "A browser", recovery: "Recovery words" };

export async function devices(): Promise<DeviceRow[]> {
  const all = await mine().devices.all();
  return Promise.all(
    all.map(async ({ publicKey, machineId, by, name, hasOtherName, kind, role, current, lastSeenAt }) => {
      const machine = machineId ? await mine().machines.called(machineId) : undefined;
      return {
        kind,
        role,
        current,
        by,
        ref: machine?.ref,
        key: publicKey,
        name: machine ? machineName(machine) : deviceName({ name, hasOtherName }, KINDS[kind] ?? kind),
        given: name ?? "",
        lastSeenAt: lastSeenAt ?? undefined,
      };
    }),
  );
}

/** Begins to add a device. */
export function beginLinking(): Promise<Linking> {
  return mine().devices.link();
}

export function newWords(): Promise<NewWords> {
  return mine().devices.newWords();
}

export async function renameDevice(key: string, name: string): Promise<void> {
  await mine().devices.rename(key, name);
}

/** Removes a device, and machines with it. Nothing is sealed to them any more, and sessions that are in use get new keys. Resolves to
 * what is still open. */
export async function removeDevice(key: string, machines: readonly string[]): Promise<Removed> {
  const removed = await mine().devices.remove([key, ...machines]);
  confirmationsChanged();
  return removed;
}

/** What a removal has left open, in sentences. */
export function leftOpen({ unconfirmed, unsearched }: { unconfirmed: readonly unknown[]; unsearched: number }): string[] {
  const [machines, sessions] = [unconfirmed.length, unsearched];
  const said: string[] = [];
  if (machines > 0) said.push(`${machines === 1 ? "A machine has" : `${machines} machines have`} not confirmed it: see Home.`);
  if (sessions > 0) said.push(notSearched(sessions));
  return said;
}
