/** Demos that this browser has begun: sessions whose agent is a script. Each is deleted when it is left. */
import { isNotFound } from "@ensemble/client";
import { mine } from "./account.ts";
import type { MachineRow } from "./machines.ts";
import { remove } from "./session-actions.ts";

const PROMPT = "The test of this project fails. Find out why.";

/** The ids of those that are not deleted yet. */
const BEGUN = "ensemble.demos";

/** What this tab shows, and how to let it go. Other tabs see the lock. */
const held = new Map<string, () => Promise<unknown>>();

/** Begins one, and gives its id. */
export async function beginDemo(machine: MachineRow, onWaiting: (reason: string | undefined) => void): Promise<string> {
  // The machine makes a directory for it.
  const wanted = { machineId: machine.id, directory: "~", provider: "demo", mode: "ask", onWaiting } as const;
  const starting = await mine().sessions.prepare(wanted);
  const { sessionId: id } = starting;
  write([...begun(), id]);
  hold(id);
  try {
    await starting.begin();
    const live = await mine().sessions.open(id);
    await live.prompt(PROMPT);
  } catch (error) {
    leave(id);
    throw error;
  }
  return id;
}

/** Whether this browser has begun it. Those of a terminal end there. */
export const isOurs = (id: string): boolean => begun().includes(id);

/** Keeps a demo for as long as this tab shows it. */
export function hold(id: string): void {
  if (held.has(id)) return;
  let letGo: () => void = () => undefined;
  const isLeft = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const released = navigator.locks.request(lockOf(id), { mode: "shared" }, () => isLeft);
  held.set(id, () => {
    letGo();
    return released;
  });
}

/** This tab shows it no longer. */
export function leave(id: string): void {
  const release = held.get(id);
  held.delete(id);
  void Promise.resolve(release?.()).then(removeLeft);
}

/** Deletes those that no tab shows. What cannot be deleted now is tried again when Home is opened. */
export async function removeLeft(): Promise<void> {
  for (const id of begun()) {
    const removeIt = async (lock: Lock | null): Promise<void> => {
      if (lock === null) return;
      await remove(id).catch((error: unknown) => {
        if (!isNotFound(error)) throw error;
      });
      write(begun().filter((other) => other !== id));
    };
    await navigator.locks.request(lockOf(id), { ifAvailable: true }, removeIt).catch(() => undefined);
  }
}

const lockOf = (id: string): string => `ensemble.demo.${id}`;

function begun(): string[] {
  try {
    const ids: unknown = JSON.parse(localStorage.getItem(BEGUN) ?? "[]");
    return Array.isArray(ids) ? ids.filter((id) => typeof id === "string") : [];
  } catch {
    return [];
  }
}

function write(ids: readonly string[]): void {
  try {
    localStorage.setItem(BEGUN, JSON.stringify(ids));
  } catch {
    // A browser that keeps nothing: the demo is deleted by hand.
  }
}
