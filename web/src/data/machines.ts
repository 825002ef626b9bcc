/** The machines of the account. */
import { bindings, type KeyRing, openJson, openRing, purposes } from "@ensemble/client/seal";
import type { components } from "@ensemble/client";
import { Store } from "../base/store.ts";
import { mine } from "./account.ts";
import { textOf } from "./failure.ts";

export interface MachineRow {
  id: string;
  ref: string;
  /** Its name in the network, opened with its key. */
  name: string;
  system: string | undefined;
  online: boolean;
  lastActiveAt: string | undefined;
  /** What its runner offers, and why not. Empty while no runner has said so. */
  offers: Offer[];
}

export interface Offer {
  provider: string;
  offered: boolean;
  reason: string | undefined;
}

interface Listed {
  rows: readonly MachineRow[];
  isLoaded: boolean;
  error: string | undefined;
}

export const machines = new Store<Listed>({ rows: [], isLoaded: false, error: undefined });

const PRESENCE_MS = 10_000;
let isWanted = false;

/** Lists them, and again when something changes, for as long as a screen shows them. */
export function showMachines(): () => void {
  isWanted = true;
  void read();
  // No hint says that a heartbeat has come, or stayed away.
  const timer = setInterval(() => {
    if (!document.hidden) void read();
  }, PRESENCE_MS);
  return () => {
    isWanted = false;
    clearInterval(timer);
  };
}

export function machinesChanged(): void {
  if (isWanted) void read();
}

async function read(): Promise<void> {
  const { client } = mine();
  try {
    const rows: MachineRow[] = [];
    const page = (cursor?: string) => client.data(client.http.GET("/v1/machines", { params: { query: { ...(cursor !== undefined && { cursor }) } } }));
    for await (const { machines: found } of client.pages(page)) rows.push(...(await Promise.all(found.map(rowOf))));
    machines.set({ rows, isLoaded: true, error: undefined });
  } catch (error) {
    machines.update((before) => ({ ...before, error: textOf(error) }));
  }
}

type Machine = components["schemas"]["Machine"];

async function rowOf(machine: Machine): Promise<MachineRow> {
  const { id, ref, online, lastActiveAt } = machine;
  const ring = await ringOf(machine).catch(() => undefined);
  const metadata = ring && (await openJson(ring, purposes.machineMetadata(id), machine.metadata).catch(() => undefined));
  const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);
  return {
    id, ref, online,
    name: text(metadata?.host) ?? `Machine ${ref}`,
    system: [text(metadata?.os), text(metadata?.arch)].filter(Boolean).join(" ") || undefined,
    lastActiveAt: lastActiveAt ?? undefined,
    offers: offersOf(machine.activity),
  };
}

/** `activity.runner.providers`, as docs/JSON.md has it. What has another form is left out. */
function offersOf(activity: unknown): Offer[] {
  const found = (activity as { runner?: { providers?: unknown } } | null | undefined)?.runner?.providers;
  if (!Array.isArray(found)) return [];
  return found.slice(0, 50).flatMap((one: { provider?: unknown; offered?: unknown; reason?: unknown } | null) => (
    typeof one?.provider === "string"
      ? [{ provider: one.provider, offered: one.offered === true, reason: typeof one.reason === "string" ? one.reason : undefined }]
      : []
  ));
}

async function ringOf(machine: Machine): Promise<KeyRing> {
  const { contents } = await mine().own();
  const signed = await contents.openWith((pair) => openRing(machine.encryptionKey, pair, bindings.machine(machine.id)));
  return signed.ring;
}
