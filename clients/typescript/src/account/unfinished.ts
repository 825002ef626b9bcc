// What is noted before it is begun, so that it can be completed after the program was ended: who is still to get which key.

import type { ShareLevel } from "../protocol/seal/share.js";
import type { KeyRing } from "../protocol/seal/ring.js";
import type { Store } from "../store/store.js";

/** The users who get the key of a session, and as what. */
export type Recipients = Record<string, ShareLevel>;

/** A right that is taken away: the version of that, and the `localId` of the command to the machine. */
export interface Revocation {
  localId: string;
  version: number;
  /** Their share is removed too: the newest epoch of the session's keys that this device had used then. They may have that key. */
  keyEpoch?: number | undefined;
}

/** Who is still to get a key: the newest epoch of its ring, and the digest of that epoch's key. */
export interface Rekey {
  recipients: Recipients;
  epoch: number;
  ring: string;
  /** Who waited for the key before it. They still do if this one was noted and never made. */
  before?: Rekey | undefined;
}

/** For a session that the server has called missing it is not asked again within this time, in milliseconds. */
const ASK_AGAIN = 3_600_000;
/** How many of these sessions are kept. */
const MOST_MISSING = 200;

export interface Unfinished {
  /** The users who still need a key of a session. */
  rekeys: Record<string, Rekey>;
  /** Who lost access to a session that has no new key since. The server may still name them. */
  removed: Record<string, string[]>;
  /** A device was removed, and sessions have no new keys yet. */
  isRemoval: boolean;
  /** Who may not command the agent of a session any more, by session and user, while its machine has not confirmed it. */
  revoked: Record<string, Record<string, Revocation>>;
  /** When the server has called a session missing of which something is not finished, in milliseconds since 1970. */
  missing: Record<string, number>;
}

const NAME = "unfinished";
const NONE: Unfinished = { rekeys: {}, removed: {}, isRemoval: false, revoked: {}, missing: {} };

/** A record of an older program lacks what was added since. */
const whole = (kept: Partial<Unfinished> | undefined): Unfinished => ({ ...structuredClone(NONE), ...structuredClone(kept) });

export const unfinished = async (store: Store): Promise<Unfinished> => whole(await store.get<Partial<Unfinished>>(NAME));

const change = (store: Store, edit: (now: Unfinished) => void): Promise<void> =>
  store.update<Unfinished>(NAME, (kept) => {
    const now = whole(kept);
    edit(now);
    return now;
  });

export async function beginRekey(store: Store, session: string, rekey: Rekey): Promise<void> {
  if (Object.keys(rekey.recipients).length === 0) return endRekey(store, session);
  await change(store, ({ rekeys }) => (rekeys[session] = rekey));
}

/** All have the key. `before`: the next one was not made, so these wait as they did. */
export async function endRekey(store: Store, session: string, before?: Rekey): Promise<void> {
  if (!before && !(await unfinished(store)).rekeys[session]) return;
  await change(store, ({ rekeys }) => {
    if (before) rekeys[session] = before;
    else delete rekeys[session];
  });
}

/** Who waits for this ring: it is the one that was made, or one that a machine has made on top of it. Another one was made by another
 * program, which has given it to the people. */
export async function waitingFor(store: Store, session: string, ring: KeyRing): Promise<Rekey | undefined> {
  const kept = (await unfinished(store)).rekeys[session];
  for (const rekey of [kept, kept?.before]) {
    if (!rekey || ring.floor !== rekey.epoch || (await ring.digestOf(rekey.epoch)) !== rekey.ring) continue;
    return { recipients: rekey.recipients, epoch: rekey.epoch, ring: rekey.ring };
  }
  return undefined;
}

export const removedShares = async (store: Store, session: string): Promise<string[]> =>
  (await unfinished(store)).removed[session] ?? [];

export const beginShareRemoval = (store: Store, session: string, user: string): Promise<void> =>
  change(store, ({ removed }) => (removed[session] = [...new Set([...(removed[session] ?? []), user])]));

/** These users do not have the session's key any more. Others may have lost access meanwhile. */
export async function endShareRemoval(store: Store, session: string, users: readonly string[]): Promise<void> {
  if (users.length === 0) return;
  await change(store, ({ removed, missing }) => {
    delete missing[session];
    const others = (removed[session] ?? []).filter((user) => !users.includes(user));
    if (others.length > 0) removed[session] = others;
    else delete removed[session];
  });
}

/** Whether the server has just called a session missing. */
export async function isMissing(store: Store, session: string): Promise<boolean> {
  const at = (await unfinished(store)).missing[session];
  // A clock that was set back must not make it longer.
  return at !== undefined && Math.abs(Date.now() - at) < ASK_AGAIN;
}

/** Notes that the server calls a session missing. What is not finished of it stays: a server could end it with one answer. Only the
 * person's own deletion does. */
export const noteMissing = (store: Store, session: string): Promise<void> =>
  change(store, ({ missing, rekeys }) => {
    missing[session] = Date.now();
    const [oldest, ...others] = Object.entries(missing).sort(([, one], [, other]) => one - other);
    if (!oldest || others.length < MOST_MISSING) return;
    // Whom the person has removed, and whose right is to end, stays noted: the server does not choose how many these are.
    delete missing[oldest[0]];
    delete rekeys[oldest[0]];
  });

/** The session is there. */
export async function endMissing(store: Store, session: string): Promise<void> {
  if ((await unfinished(store)).missing[session] === undefined) return;
  await change(store, ({ missing }) => delete missing[session]);
}

function forget({ rekeys, removed, revoked, missing }: Unfinished, session: string): void {
  for (const all of [rekeys, removed, revoked, missing]) delete all[session];
}

/** Whether something of a session is not finished. */
export async function isUnfinished(store: Store, session: string): Promise<boolean> {
  const { rekeys, removed, revoked } = await unfinished(store);
  return [rekeys, removed, revoked].some((all) => session in all);
}

/** The person has deleted the session. */
export async function forgetUnfinished(store: Store, session: string): Promise<void> {
  if (await isUnfinished(store, session)) await change(store, (now) => forget(now, session));
}

export const setRemoval = (store: Store, isRemoval: boolean): Promise<void> =>
  change(store, (now) => (now.isRemoval = isRemoval));

export const beginRevocation = (store: Store, session: string, user: string, revocation: Revocation): Promise<void> =>
  change(store, ({ revoked }) => ((revoked[session] ??= {})[user] = revocation));

export async function endRevocation(store: Store, session: string, user: string): Promise<void> {
  if (!(await unfinished(store)).revoked[session]?.[user]) return;
  await change(store, ({ revoked }) => {
    const { [user]: _ended, ...others } = revoked[session] ?? {};
    if (Object.keys(others).length > 0) revoked[session] = others;
    else delete revoked[session];
  });
}
