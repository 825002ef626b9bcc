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
}

/** Who is still to get a key: the newest epoch of its ring, and the digest of that epoch's key. */
export interface Rekey {
  recipients: Recipients;
  epoch: number;
  ring: string;
  /** Who waited for the key before it. They still do if this one was noted and never made. */
  before?: Rekey | undefined;
}

export interface Unfinished {
  /** The users who still need a key of a session. */
  rekeys: Record<string, Rekey>;
  /** Who lost access to a session that has no new key since. The server may still name them. */
  removed: Record<string, string[]>;
  /** A device was removed, and sessions have no new keys yet. */
  isRemoval: boolean;
  /** Who may not command the agent of a session any more, by session and user, while its machine has not confirmed it. */
  revoked: Record<string, Record<string, Revocation>>;
}

const NAME = "unfinished";
const NONE: Unfinished = { rekeys: {}, removed: {}, isRemoval: false, revoked: {} };

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

export const endShareRemoval = (store: Store, session: string): Promise<void> =>
  change(store, ({ removed }) => delete removed[session]);

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
