// What this device remembers of the sessions that it has used, so that a server that shows something else is noticed.

import type { KeyRing } from "../../protocol/seal/ring.js";
import type { Context } from "../context.js";
import type { components } from "../../openapi.js";

export type Session = components["schemas"]["Session"];

/** What is remembered of a session that this device has used. */
interface KnownSession {
  epoch: number;
  /** The highest floor of a ring that was used. A machine or a device that is removed later could have set an older one. */
  floor?: number;
  owner?: string;
  /** The machine that hosts it. */
  host?: string | undefined;
  /** From this epoch on its machine has no key of it, because it was removed. */
  hostless?: number | undefined;
}

export const isOwner = (session: Session): boolean => session.accessLevel === "owner";
export const hostOf = (session: Session): string | undefined => (session.hosted ? (session.machineId ?? undefined) : undefined);
const record = (session: string): string => `session ${session}`;

/** What is remembered of a session. Undefined: it was not used here. */
export const knownSession = (context: Context, session: string): Promise<KnownSession | undefined> =>
  context.store.get<KnownSession>(record(session));

/** The epoch of the oldest grant that counts in a session, as far as this device knows. */
export const knownFloor = async (context: Context, session: string): Promise<number> =>
  (await knownSession(context, session))?.floor ?? 1;

/** Remembers whose a session is, and the epochs of a ring that was made here or by a device that is listed now. */
export async function rememberSession(
  context: Context,
  session: Session,
  ring: KeyRing | undefined,
  isHostless?: boolean,
): Promise<void> {
  await context.store.update<KnownSession>(record(session.id), (known) => ({
    epoch: Math.max(ring?.epoch ?? 1, known?.epoch ?? 1),
    floor: Math.max(ring?.floor ?? 1, known?.floor ?? 1),
    owner: session.ownerId,
    host: hostOf(session),
    hostless: isHostless === false ? undefined : (known?.hostless ?? (isHostless ? ring?.epoch : undefined)),
  }));
}
