// The keys of sessions for reading: opened, and checked for who made or gave them.

import { Distrust, SealError } from "../../errors.js";
import { makesKeys, type ListedDevice } from "../../protocol/lists/list.js";
import type { KeyRing } from "../../protocol/seal/ring.js";
import { SharedRing } from "../../protocol/seal/share.js";
import { bindings, openRing, type SignedRing } from "../../protocol/seal/signed-ring.js";
import type { Context } from "../context.js";
import { everHadOnce, JUST_READ } from "../lists.js";
import type { Own } from "../own.js";
import { remembered } from "../remembered.js";
import { hostOf, isOwner, knownSession, lostKeys, rememberSession, type KnownSession, type Session } from "./known.js";
import { checkGrant } from "./share.js";

/** A session as it was judged, with its keys. */
export interface Opened {
  session: Session;
  ring: KeyRing;
}

/** How many rings are kept to show titles. */
const MOST_RINGS = 2_000;
const rings = new WeakMap<Context, Map<string, Promise<KeyRing>>>();

/** The session as the server shows it, if its owner is the same as before. */
export async function readSession(context: Context, id: string): Promise<Session> {
  const { client, userId } = context;
  const session = await client.call("GET", "/v1/sessions/{id}", { path: { id } });
  if (session.id !== id && session.ref !== id) {
    throw new Distrust("The server answered with another session than the one that was asked for. Do not trust it.");
  }
  const known = await knownSession(context, session.id);
  const isOther = known?.owner !== undefined && (known.owner !== session.ownerId || known.host !== hostOf(session));
  if (isOther || (session.ownerId === userId) !== isOwner(session)) {
    throw new Distrust(`The server says that session ${session.ref} now belongs to another user. Do not trust this server.`);
  }
  return session;
}

export const binding = (context: Context, session: Session): string =>
  bindings.session(session.id, context.userId, hostOf(session));

/** The session's ring and who signed it. Whether they may is not checked. */
async function signedRing(context: Context, session: Session): Promise<SignedRing> {
  try {
    return await openedRing(context, session, await context.own());
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
    // Another program of this person may have removed a device since this one has read the account's keys.
    return openedRing(context, session, await context.own(JUST_READ));
  }
}

/** The epoch of the ring in an answer. What does not open is never the older one of two. */
export const epochIn = (context: Context, session: Session): Promise<number> =>
  signedRing(context, session).then(
    ({ ring }) => ring.epoch,
    () => Number.POSITIVE_INFINITY,
  );

async function openedRing(context: Context, session: Session, { contents }: Own): Promise<SignedRing> {
  const missing = (): SealError => new SealError("format", `The server gave no key of session ${session.ref}.`);
  if (isOwner(session)) {
    const sealed = session.encryptionKey;
    if (!sealed) throw missing();
    return contents.openWith((pair) => openRing(sealed, pair, binding(context, session)));
  }
  if (!session.encryptedKey) throw missing();
  const shared = SharedRing.fromText(session.encryptedKey);
  return contents.openWith((pair) => shared.open(pair, session.id, context.userId, hostOf(session)));
}

/** The ring for the title of a session. Of an own session who made it is checked: people choose by what it says. */
async function titleRing(context: Context, session: Session): Promise<SignedRing> {
  const signed = await signedRing(context, session);
  if (!isOwner(session)) return signed;
  const { list } = await context.own();
  const counts = makes(session);
  const entry = list.device(signed.signer);
  const isNow = entry !== undefined && counts(entry);
  // A device that was removed since made the rings of its time.
  if (!isNow && !(await everHadOnce(context.client, context.userId, list, signed.signer, [hostOf(session) ?? "", counts]))) {
    throw new Distrust(
      `The key of session ${session.ref} was not made by one of your devices, so it was not used. Do not trust this server.`,
    );
  }
  return signed;
}

/** The same ring, opened once. */
export function ringForTitle(context: Context, session: Session): Promise<KeyRing> {
  const all = rings.get(context) ?? new Map<string, Promise<KeyRing>>();
  rings.set(context, all);
  const name = session.encryptionKey ?? session.encryptedKey ?? session.id;
  return remembered(all, name, MOST_RINGS, async () => (await titleRing(context, session)).ring);
}

/** The session with its keys, if who made or gave them may, and they are not older than keys that were used before. */
export async function readable(context: Context, given: Session): Promise<Opened> {
  const { session, ring, known } = await newest(context, given);
  if ((await lostKeys(known, ring)) > 0) throw olderKey(session);
  return { session, ring };
}

/** The session with the keys for reading. A server that was restored has lost newer keys of an own session: what it has is read, and
 * nothing is written under it. */
export async function readableSoFar(context: Context, given: Session): Promise<Opened> {
  const { session, ring } = isOwner(given) ? await newest(context, given) : await readable(context, given);
  return { session, ring };
}

export const olderKey = ({ ref }: Session): Distrust =>
  new Distrust(
    `The server gave you an older key of session ${ref} than this device has used, or another one in its place, so it was not used. After a restore from a backup its owner makes new ones, at most once an hour.`,
  );

/** The session with the newest keys that the server has, and what was known of it. It is the session as it is now, when another tab has
 * made a newer key since it was read. */
export async function newest(context: Context, given: Session): Promise<Opened & { known: KnownSession | undefined }> {
  let [session, ring] = [given, await checkedRing(context, given)];
  const known = await knownSession(context, given.id);
  if ((await lostKeys(known, ring)) > 0) {
    session = await readSession(context, given.id);
    ring = await checkedRing(context, session);
  }
  return { session, ring, known };
}

/** The keys for reading, if their maker or giver may give them. */
async function checkedRing(context: Context, session: Session): Promise<KeyRing> {
  const { ring, signer } = await titleRing(context, session);
  const isGrantCurrent = isOwner(session) || (await checkGrant(context, session, "read"));
  const known = await knownSession(context, session.id);
  const isHigher = ring.epoch > (known?.epoch ?? 1) || ring.floor > (known?.floor ?? 1);
  // A device that was removed could set any epoch, and what is remembered is never lowered.
  const counts = isHigher && isGrantCurrent && (!isOwner(session) || (await isMadeNow(context, session, signer, 0)));
  await rememberSession(context, session, counts ? ring : undefined);
  return ring;
}

/** Whether a device that is listed now has made a ring of an own session. */
export async function isMadeNow(context: Context, session: Session, signer: string, maxAge?: number): Promise<boolean> {
  const { list } = await context.own(maxAge);
  // A key that is not in the list may have been added a moment ago: only the newest list says that it is gone.
  const entry = list.device(signer) ?? (maxAge === 0 ? undefined : (await context.own(0)).list.device(signer));
  return entry !== undefined && makes(session)(entry);
}

const makes = (session: Session): ((device: ListedDevice) => boolean) => makesKeys(hostOf(session));
