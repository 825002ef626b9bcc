/** Looks at the machine of a session, with the keys of this browser. */
import { Looks as Machine } from "@ensemble/client/looks";
import { mine } from "./account.ts";
import { type Looks, looksBy } from "./looks.ts";
import type { SessionRow } from "./row.ts";

export function looksOf({ id, ownerId, machineId }: SessionRow): Looks {
  if (machineId === undefined) throw new Error("No machine hosts this session.");
  return looksBy(new Machine(mine(), { id, ownerId, machineId }));
}
