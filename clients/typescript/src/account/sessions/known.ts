// What this device remembers of the sessions that it has used, so that a server that shows something else is noticed.

import type { KeyRing } from "../../protocol/seal/ring.js";
import type { Context } from "../context.js";
import type { components } from "../../openapi.js";

export type Session = components["schemas"]["Session"];

/** What is remembered of a session that this device has used. */
export interface KnownSession {
  epoch: number;
  /** The highest floor of a ring that was used. A machine or a device that is removed later could have set an older one. */
  floor?: number;
  owner?: string;
  /** The machine that hosts it. */
  host?: string | undefined;
  /** From this epoch on its machine has no key of it, because it was removed. */
  hostless?: number | undefined;
  /** When this device last made a key only because the server asked for it, in milliseconds since 1970 by the clock of this device. */
  asked?: number | undefined;
  /** When keys last took the place of ones that the server had lost. */
  replaced?: number | undefined;
  /** What `asked` is, for the guests who had removed a device. */
  renewed?: Record<string, number> | undefined;
  /** The epoch of the last key that was to be made for these reasons. The times count once the session has it: an attempt that failed has
   * made none. */
  tried?: number | undefined;
  /** The highest version of a right that this device has signed for a person. A server could keep it back until later. */
  given?: number | undefined;
}

/** For what this device cannot prove by its account's own list, a session gets one key in this many milliseconds: a ring holds 170 keys. */
const ONE_KEY = 3_600_000;
/** Whether that time has passed. A clock that was set back must not make it longer. */
const isOver = (at: number): boolean => Math.abs(Date.now() - at) >= ONE_KEY;

export const isOwner = (session: Session): boolean => session.accessLevel === "owner";
export const hostOf = (session: Session): string | undefined => (session.hosted ? (session.machineId ?? undefined) : undefined);
const record = (session: string): string => `session ${session}`;

/** What is remembered of a session. Undefined: it was not used here. */
export const knownSession = (context: Pick<Context, "store">, session: string): Promise<KnownSession | undefined> =>
  context.store.get<KnownSession>(record(session));

/** Remembers the owner of a session, and the epochs of a ring that was made here or by a device that is listed now. */
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
    asked: known?.asked,
    replaced: known?.replaced,
    renewed: known?.renewed,
    tried: known?.tried,
    given: known?.given,
    hostless: isHostless === false ? undefined : (known?.hostless ?? (isHostless ? ring?.epoch : undefined)),
  }));
}

/** How many newer keys than this ring has were used here. A server that was restored has lost them. */
export const lostEpochs = (known: KnownSession | undefined, ring: KeyRing): number =>
  Math.max(0, (known?.epoch ?? 1) - ring.epoch);

/** Whether keys may take the place of lost ones now. A server could show an old key again and again, until the ring is full. What was begun
 * is completed. */
export const mayReplaceLost = (known: KnownSession | undefined): boolean =>
  (known?.tried ?? 0) > (known?.epoch ?? 1) || known?.replaced === undefined || isOver(known.replaced);

/** Whether the server's word may replace the key of this epoch now. */
export async function mayAsk(context: Context, session: string, epoch: number): Promise<boolean> {
  const { asked, tried = 0 } = (await knownSession(context, session)) ?? {};
  return epoch < tried || asked === undefined || isOver(asked);
}

/** Those of these guests whose removals may replace the key of this epoch now. */
export async function mayRenew(context: Context, session: string, epoch: number, guests: readonly string[]): Promise<string[]> {
  const { renewed = {}, tried = 0 } = (await knownSession(context, session)) ?? {};
  return guests.filter((guest) => epoch < tried || renewed[guest] === undefined || isOver(renewed[guest]));
}

/** Notes before the key of this epoch is made that the server has asked for it, or that these guests have removed a device. */
export async function noteCause(
  context: Context,
  session: string,
  epoch: number,
  isAsked: boolean,
  guests: readonly string[],
): Promise<void> {
  if (!isAsked && guests.length === 0) return;
  const now = Date.now();
  await context.store.update<KnownSession>(record(session), (known) => {
    const recent = Object.entries(known?.renewed ?? {}).filter(([, at]) => !isOver(at));
    const renewed = Object.fromEntries([...recent, ...guests.map((guest) => [guest, now] as const)]);
    return { ...known, epoch: known?.epoch ?? 1, tried: epoch, asked: isAsked ? now : known?.asked, renewed };
  });
}

/** Notes before keys take the place of lost ones which epoch is to be the last one, and that it is now. `tried`: nothing was begun. */
export const noteReplaced = (context: Context, session: string, tried: number | undefined, isNow: boolean): Promise<void> =>
  context.store.update<KnownSession>(record(session), (known) => ({
    ...known,
    epoch: known?.epoch ?? 1,
    tried,
    replaced: isNow ? Date.now() : known?.replaced,
  }));

/** Notes the version of a right before it is signed, and returns it: `version` of the highest one before. */
export async function noteGiven(
  { store }: Pick<Context, "store">,
  session: string,
  version: (given: number) => number,
): Promise<number> {
  let next = 0;
  await store.update<KnownSession>(record(session), (known) => {
    next = version(known?.given ?? 0);
    return { ...known, epoch: known?.epoch ?? 1, given: next };
  });
  return next;
}
