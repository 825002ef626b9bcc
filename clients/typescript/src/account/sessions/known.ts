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
  /** The key of an own session that it has made, or written under, last. */
  used?: UsedKey | undefined;
  /** The key that is to take the place of that one, which the server has lost. */
  begun?: UsedKey | undefined;
}

/** A key that was made here, or written under, and who had it. */
interface UsedKey {
  epoch: number;
  /** Which key it is, without the key. */
  digest: string;
  floor: number;
  /** The same of the key at the floor, which a person's device has made. Each removal of a person sets the floor. */
  digestOfFloor: string;
  /** Without those to whom an admin has given it. */
  people: string[];
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
    used: known?.used,
    begun: known?.begun,
    hostless: isHostless === false ? undefined : (known?.hostless ?? (isHostless ? ring?.epoch : undefined)),
  }));
}

const newestOf = async (ring: KeyRing, people: string[]): Promise<UsedKey> => ({
  epoch: ring.epoch,
  digest: (await ring.digestOf(ring.epoch)) ?? "",
  floor: ring.floor,
  digestOfFloor: (await ring.digestOf(ring.floor)) ?? "",
  people: [...people].sort(),
});

/** Whether this ring has another key in the place of the one that was used here, or of the one at its floor. A device that did not know that
 * one has made it, so it may be with people who were removed. */
export async function hasOther({ used, begun }: KnownSession = { epoch: 1 }, ring: KeyRing): Promise<boolean> {
  if (!used || (begun && (await ring.digestOf(begun.epoch)) === begun.digest)) return false;
  const at = [await ring.digestOf(used.epoch), await ring.digestOf(used.floor)] as const;
  return (at[0] ?? used.digest) !== used.digest || (at[1] ?? used.digestOfFloor) !== used.digestOfFloor;
}

/** How many keys that were used here this ring lacks. A server that was restored has lost them. */
export async function lostKeys(known: KnownSession | undefined, ring: KeyRing): Promise<number> {
  return Math.max((known?.epoch ?? 1) - ring.epoch, Number(await hasOther(known, ring)));
}

/** Who had this ring's key when it was used here last. */
export async function peopleOf(known: KnownSession | undefined, ring: KeyRing): Promise<string[]> {
  const used = known?.used;
  return used?.epoch === ring.epoch && (await ring.digestOf(used.epoch)) === used.digest ? used.people : [];
}

/** Who had the newest key that this device knows, and that the server has lost. */
export async function peopleOfLost(known: KnownSession | undefined, ring: KeyRing): Promise<Set<string>> {
  if (!known || (await lostKeys(known, ring)) === 0) return new Set();
  const isOther = await hasOther(known, ring);
  const keys = [known.used, known.begun].filter((key) => isOther || key?.epoch === known.epoch);
  return new Set(keys.flatMap((key) => key?.people ?? []));
}

/** Notes that this ring's key was made here, or is written under, and who has it. False: another program has noted another key meanwhile. */
export async function noteUsed(context: Context, session: string, ring: KeyRing, people: string[]): Promise<boolean> {
  const used = await newestOf(ring, people);
  const before = await knownSession(context, session);
  if ((before?.epoch ?? 1) <= ring.epoch && JSON.stringify(before?.used) === JSON.stringify(used)) return true;
  let isNewest = !(await hasOther(before, ring));
  await context.store.update<KnownSession>(record(session), (known) => {
    isNewest &&= (known?.epoch ?? 1) <= ring.epoch && [before?.used?.digest, used.digest].includes(known?.used?.digest);
    return known && !isNewest ? known : { ...known, epoch: ring.epoch, used, begun: undefined };
  });
  return isNewest;
}

/** Notes that a person was given this ring's key. */
export async function notePerson(context: Context, session: string, ring: KeyRing, user: string): Promise<void> {
  const { digest } = await newestOf(ring, []);
  await context.store.update<KnownSession>(record(session), (known = { epoch: 1 }) => {
    if (known.used?.digest !== digest) return known;
    return { ...known, used: { ...known.used, people: [...new Set([...known.used.people, user])].sort() } };
  });
}

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

/** Notes before keys take the place of lost ones which is to be the last one, who gets it, and that it is now. */
export async function beginReplacing(context: Context, session: string, ring: KeyRing, people: string[]): Promise<void> {
  const begun = await newestOf(ring, people);
  await context.store.update<KnownSession>(record(session), (known) => ({
    ...known,
    epoch: known?.epoch ?? 1,
    tried: ring.epoch,
    replaced: Date.now(),
    begun,
  }));
}

/** The server has another key than it has shown, so nothing was begun. */
export const endReplacing = (context: Context, session: string, tried: number | undefined): Promise<void> =>
  context.store.update<KnownSession>(record(session), (known) => ({ ...known, epoch: known?.epoch ?? 1, tried }));

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
