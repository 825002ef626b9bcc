// Which machines have confirmed the last removal of a device.

import type { Context } from "../context.js";
import { followHints } from "../../streams.js";
import { allMachines, type Machine } from "./find.js";

/** A machine that may still obey a device that was removed. */
export interface Unconfirmed {
  id: string;
  /** The server says that it is there, or was within the last hour. */
  wasThere: boolean;
}

/** A machine that is there confirms a removal within this time. A machine that was there lately is waited for. In milliseconds. */
const CONFIRMS_WITHIN = 20_000;
const LATELY = 3_600_000;

/** The machines that have not confirmed the last removal of a device. */
export async function unconfirmed(context: Context): Promise<Unconfirmed[]> {
  let { list } = await context.own();
  if ((await list.unconfirmed(() => undefined)).length === 0) return [];
  const all = new Map((await allMachines(context)).map((machine) => [machine.id, machine]));
  // Another device may have changed the list since, and the machine was faster.
  if ([...all.values()].some(({ seen }) => (seen?.version ?? 0) > list.version)) ({ list } = await context.own(0));
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

/** The same after each machine that was there lately has confirmed, or after 20 s. One that cannot be checked counts as not confirmed. */
export async function awaitConfirmed(context: Context): Promise<Unconfirmed[]> {
  const signal = AbortSignal.timeout(CONFIRMS_WITHIN);
  const { list } = await context.own();
  let open = (await list.unconfirmed(() => undefined)).map((id): Unconfirmed => ({ id, wasThere: true }));
  try {
    open = await unconfirmed(context);
    if (!open.some(({ wasThere }) => wasThere)) return open;
    // The first hint is `all`.
    for await (const { kind } of followHints(context.client, { signal })) {
      if (kind !== "machine" && kind !== "all") continue;
      open = await unconfirmed(context);
      if (!open.some(({ wasThere }) => wasThere)) break;
    }
  } catch {
    // The last known state stays.
  }
  return open;
}
