// What machines say that they can do.

import { openDaemonState, type DaemonState } from "../../protocol/seal/daemon-state.js";
import type { Context } from "../context.js";
import type { Machine } from "./find.js";

/** The highest version that this device has seen, by the key of the machine. */
const NAME = "daemon states";
/** How many are kept. */
const MOST = 200;
/** By how much a version is above the known one at most. A server could have a machine sign the highest one there is. */
const LARGEST_STEP = 1_000;
/** The same where none is known. */
const FIRST = 1_000_000;

export async function daemonState(context: Context, machine: Machine): Promise<DaemonState | undefined> {
  const { id, daemonState: sealed, daemonStateVersion: version } = machine;
  const { contents, list } = await context.own();
  const key = list.machine(id)?.key;
  if (typeof sealed !== "string" || key === undefined) return undefined;
  const opened = await contents.openWith((pair) => openDaemonState(sealed, pair, [id, version], key)).catch(() => undefined);
  if (!opened) return undefined;
  let isNewest = false;
  await context.store.update<[string, number][]>(NAME, (all = []) => {
    const seen = all.find(([of]) => of === key)?.[1];
    isNewest = version >= (seen ?? 0) && version <= (seen ?? FIRST) + LARGEST_STEP;
    if (!isNewest || seen === version) return all;
    return [[key, version] as [string, number], ...all.filter(([of]) => of !== key)].slice(0, MOST);
  });
  return isNewest ? opened : undefined;
}
