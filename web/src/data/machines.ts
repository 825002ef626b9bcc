/** The machines of the account. Their names come from the signed list, and not from the machine or the server. */
import type { Machine } from "@ensemble/client/account";
import { Store } from "../base/store.ts";
import { machineName } from "../base/words.ts";
import { mine } from "./account.ts";
import { textOf } from "./failure.ts";
import { keepTrying } from "./keep-trying.ts";
import { keep, recall } from "./kept.ts";

export interface MachineRow {
  id: string;
  ref: string;
  /** Its name, or what is shown in its place. */
  name: string;
  /** Its name in the signed list. Empty if it has none. */
  given: string;
  system: string | undefined;
  online: boolean;
  lastActiveAt: string | undefined;
  /** What its runner offers, and why not. Empty while no runner has said so. */
  offers: Offer[];
  /** What it can do besides, as it says under its key. */
  does: readonly string[];
}

export interface Offer {
  provider: string;
  offered: boolean;
  reason: string | undefined;
}

interface Listed {
  rows: readonly MachineRow[];
  /** The names of machines in the signed list that the server does not show. */
  hidden: readonly string[];
  isLoaded: boolean;
  error: string | undefined;
}

export const machines = new Store<Listed>({ rows: [], hidden: [], isLoaded: false, error: undefined });

const KEPT = "machines, hidden ones and what they do";
let wanted: AbortController | undefined;
let reading: AbortController | undefined;

/** Lists them, and again when something changes, for as long as a screen shows them. */
export function showMachines(): () => void {
  const stop = new AbortController();
  wanted = stop;
  void showKept();
  machinesChanged();
  return () => stop.abort();
}

export function machinesChanged(): void {
  if (!wanted || wanted.signal.aborted) return;
  reading?.abort();
  reading = new AbortController();
  const failed = (error: unknown): void => machines.update((before) => ({ ...before, error: textOf(error) }));
  void keepTrying(read, failed, AbortSignal.any([wanted.signal, reading.signal]));
}

async function showKept(): Promise<void> {
  const found = await recall<Pick<Listed, "rows" | "hidden">>(KEPT);
  if (found && !machines.get().isLoaded) machines.set({ ...found.value, isLoaded: true, error: undefined });
}

/** The machines that have not confirmed that a device was removed, or that recovery words were replaced. */
export const unconfirmed = new Store<{ names: readonly string[]; isOfWords: boolean }>({ names: [], isOfWords: false });

/** Hints come in groups. */
const LOOKED_AFTER_MS = 1_000;
let looking: ReturnType<typeof setTimeout> | undefined;

/** A machine, or the list of devices, may be another one. What was shown stays until the server answers. */
export function confirmationsChanged(): void {
  looking ??= setTimeout(() => {
    looking = undefined;
    void readUnconfirmed().catch(() => undefined);
  }, LOOKED_AFTER_MS);
}

async function readUnconfirmed(): Promise<void> {
  const found = await mine().machines.unconfirmed();
  if (found.length === 0 && unconfirmed.get().names.length === 0) return;
  const names = await Promise.all(found.map(({ id }) => nameOfMachine(id)));
  const isOfWords = (await mine().own()).list.removal?.isOfWords === true;
  unconfirmed.set({ names, isOfWords });
}

/** What a machine of the account is called. */
export async function nameOfMachine(id: string): Promise<string> {
  return machineName(await mine().machines.called(id));
}

/** Deletes it, and takes its key from the account's list where this device may. */
export async function removeMachine(id: string): Promise<void> {
  await mine().machines.remove(id);
  machines.update((before) => ({ ...before, rows: before.rows.filter((row) => row.id !== id) }));
}

async function read(): Promise<void> {
  const all = mine().machines;
  const shown = await all.all();
  const [rows, hidden] = await Promise.all([Promise.all(shown.map(rowOf)), all.hidden(shown)]);
  machines.set({ rows, hidden, isLoaded: true, error: undefined });
  void keep("seen", KEPT, { rows, hidden });
}

async function rowOf(machine: Machine): Promise<MachineRow> {
  const { id, ref, online, lastActiveAt } = machine;
  const all = mine().machines;
  const [called, metadata, can] = await Promise.all([
    all.called(id),
    all.metadata(machine).catch(() => undefined),
    all.can(machine).catch(() => undefined),
  ]);
  const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);
  return {
    id,
    ref,
    online,
    name: machineName(called),
    given: called.name ?? "",
    system: [text(metadata?.os), text(metadata?.arch)].filter(Boolean).join(" ") || undefined,
    lastActiveAt: lastActiveAt ?? undefined,
    offers: offersOf(machine.activity),
    does: can?.does ?? [],
  };
}

/** `activity.runner.providers`, as docs/JSON.md has it. What has another form is left out. */
function offersOf(activity: unknown): Offer[] {
  const found = (activity as { runner?: { providers?: unknown } } | null | undefined)?.runner?.providers;
  if (!Array.isArray(found)) return [];
  return found.slice(0, 50).flatMap((one: { provider?: unknown; offered?: unknown; reason?: unknown } | null) =>
    typeof one?.provider === "string"
      ? [
          {
            provider: one.provider,
            offered: one.offered === true,
            reason: typeof one.reason === "string" ? one.reason : undefined,
          },
        ]
      : [],
  );
}
