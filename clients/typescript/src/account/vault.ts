// The keys of sessions: opened, checked, and changed when somebody lost access.

import { Distrust, isNotFound, isProblem, Refused, SealError } from "../errors.js";
import { makesKeys, type ListedDevice } from "../seal/device-list.js";
import { KeyRing } from "../seal/ring.js";
import { SharedRing } from "../seal/share.js";
import { bindings, openRing, sealRing, type SignedRing } from "../seal/signed-ring.js";
import type { Account, Own } from "./account.js";
import { everHadOnce } from "./lists.js";
import { checkGrant, grantedRecipients, hasOldShares, passOn, type Members } from "./grants.js";
import { noteTitle, titleForNewKey } from "./titles.js";
import { beginRekey, endRekey, endShareRemoval, removedShares, unfinished, waitingFor } from "./unfinished.js";
import type { components } from "../openapi.js";

export type Session = components["schemas"]["Session"];
type UpdateSession = components["schemas"]["UpdateSession"];

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

/** A session as it was judged, with its keys. */
export interface Opened {
  session: Session;
  ring: KeyRing;
}

/** How old the lists may be by which something is written, in milliseconds. */
export const FRESH = 10_000;

const isOwner = (session: Session): boolean => session.accessLevel === "owner";
export const hostOf = (session: Session): string | undefined => (session.hosted ? (session.machineId ?? undefined) : undefined);
const record = (session: string): string => `session ${session}`;

/** The session as the server has it, if it belongs to whom it belonged before. */
export async function readSession(account: Account, id: string): Promise<Session> {
  const { client, store, userId } = account;
  const session = await client.data(client.http.GET("/v1/sessions/{id}", { params: { path: { id } } }));
  if (session.id !== id && session.ref !== id) {
    throw new Distrust("The server answered with another session than the one that was asked for. Do not trust it.");
  }
  const known = await store.get<KnownSession>(record(session.id));
  const isOther = known?.owner !== undefined && (known.owner !== session.ownerId || known.host !== hostOf(session));
  if (isOther || (session.ownerId === userId) !== isOwner(session)) {
    throw new Distrust(
      `The server says that session ${session.ref} belongs to somebody else than before. Do not trust this server.`,
    );
  }
  return session;
}

/** The epoch of the oldest grant that counts in a session, as far as this device knows. */
export const knownFloor = async (account: Account, session: string): Promise<number> =>
  (await account.store.get<KnownSession>(record(session)))?.floor ?? 1;

/** Remembers whose a session is, and the epochs of a ring that was made here or by a device that is listed now. */
export async function rememberSession(
  account: Account,
  session: Session,
  ring: KeyRing | undefined,
  isHostless?: boolean,
): Promise<void> {
  await account.store.update<KnownSession>(record(session.id), (known) => ({
    epoch: Math.max(ring?.epoch ?? 1, known?.epoch ?? 1),
    floor: Math.max(ring?.floor ?? 1, known?.floor ?? 1),
    owner: session.ownerId,
    host: hostOf(session),
    hostless: isHostless === false ? undefined : (known?.hostless ?? (isHostless ? ring?.epoch : undefined)),
  }));
}

const binding = (account: Account, session: Session): string => bindings.session(session.id, account.userId, hostOf(session));

/** The session's ring and who signed it. Whether they may is not checked. */
async function signedRing(account: Account, session: Session): Promise<SignedRing> {
  try {
    return await openedRing(account, session, await account.own());
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
    // Another program of this person may have removed a device since this one has read the account's keys.
    return openedRing(account, session, await account.own(1_000));
  }
}

async function openedRing(account: Account, session: Session, { contents }: Own): Promise<SignedRing> {
  const missing = (): SealError => new SealError("format", `The server gave no key of session ${session.ref}.`);
  if (isOwner(session)) {
    const sealed = session.encryptionKey;
    if (!sealed) throw missing();
    return contents.openWith((pair) => openRing(sealed, pair, binding(account, session)));
  }
  if (!session.encryptedKey) throw missing();
  const shared = SharedRing.fromText(session.encryptedKey);
  return contents.openWith((pair) => shared.open(pair, session.id, account.userId, hostOf(session)));
}

/** The ring for the title of a session. Of an own session who made it is checked: people choose by what it says. */
export async function titleRing(account: Account, session: Session): Promise<SignedRing> {
  const signed = await signedRing(account, session);
  if (!isOwner(session)) return signed;
  const { list } = await account.own();
  const counts = makes(session);
  const entry = list.device(signed.signer);
  const isNow = entry !== undefined && counts(entry);
  // A device that was removed since made the rings of its time.
  if (!isNow && !(await everHadOnce(account.client, account.userId, list, signed.signer, [hostOf(session) ?? "", counts]))) {
    throw new Distrust(
      `The key of session ${session.ref} was not made by one of your devices, so it was not used. Do not trust this server.`,
    );
  }
  return signed;
}

/** The session with the keys for reading, if who made or gave them may, and they are not older than keys that were used before. It is
 * the session as it is now, when another tab has made a newer key since it was read. */
export async function readable(account: Account, given: Session): Promise<Opened> {
  const ring = await checkedRing(account, given);
  const least = (await account.store.get<KnownSession>(record(given.id)))?.epoch ?? 1;
  if (ring.epoch >= least) return { session: given, ring };
  const session = await readSession(account, given.id);
  const newer = await checkedRing(account, session);
  if (newer.epoch < least) {
    throw new Distrust(`The server gave you an older key of session ${session.ref} than it gave before, so it was not used.`);
  }
  return { session, ring: newer };
}

/** The keys for reading, if who made or gave them may. */
async function checkedRing(account: Account, session: Session): Promise<KeyRing> {
  const { ring, signer } = await titleRing(account, session);
  const isGrantCurrent = isOwner(session) || (await checkGrant(account, session, "read"));
  const known = await account.store.get<KnownSession>(record(session.id));
  const isHigher = ring.epoch > (known?.epoch ?? 1) || ring.floor > (known?.floor ?? 1);
  // A device that was removed could set any epoch, and what is remembered is never lowered.
  const counts = isHigher && isGrantCurrent && (!isOwner(session) || (await isMadeNow(account, session, signer, 0)));
  await rememberSession(account, session, counts ? ring : undefined);
  return ring;
}

/** Whether a device that is listed now has made a ring of an own session. */
async function isMadeNow(account: Account, session: Session, signer: string, maxAge?: number): Promise<boolean> {
  const { list } = await account.own(maxAge);
  // A key that is not in the list may have been added a moment ago: only the newest list says that it is gone.
  const entry = list.device(signer) ?? (maxAge === 0 ? undefined : (await account.own(0)).list.device(signer));
  return entry !== undefined && makes(session)(entry);
}

const makes = (session: Session): ((device: ListedDevice) => boolean) => makesKeys(hostOf(session));

/** Whether devices that were removed since could open this ring: it was sealed in an earlier content epoch, or by a device that is
 * not listed any more. */
export async function isStale(account: Account, session: Session): Promise<boolean> {
  const sealed = session.encryptionKey;
  if (!isOwner(session) || !sealed) return false;
  const { contents } = await account.own();
  try {
    const { signer } = await openRing(sealed, await contents.pair(), binding(account, session));
    return !(await isMadeNow(account, session, signer));
  } catch (error) {
    if (error instanceof SealError) return true;
    throw error;
  }
}

/** Whether the machine that hosts the session is not in the account's list any more. */
export function isWithoutItsHost({ list }: Own, session: Session): boolean {
  const host = hostOf(session);
  return session.hosted === true && (host === undefined || !list.machine(host));
}

/** Whether a machine that was removed has the key of now. */
export async function mayItsHostRead(account: Account, session: Session): Promise<boolean> {
  if (!isWithoutItsHost(await account.own(), session)) return false;
  const known = await account.store.get<KnownSession>(record(session.id));
  return known?.hostless === undefined || session.keyEpoch < known.hostless;
}

/** Whether devices that were removed, users who lost access, or a machine that was removed have the session's key. */
const hasOldKey = async (account: Account, session: Session): Promise<boolean> =>
  session.rekeyNeeded || (await isStale(account, session)) || (await mayItsHostRead(account, session));

/** The session with the keys for writing. It gets a new key first if somebody has the old one who must not read what comes. */
export async function writable(account: Account, id: string): Promise<Opened> {
  const [read] = await Promise.all([readSession(account, id), account.own(FRESH)]);
  // What is judged below is what is written under.
  const opened = await readable(account, read);
  const { session, ring } = opened;
  if (isOwner(session)) {
    if ((await hasOldKey(account, session)) || (await hasOldShares(account, session))) return rekey(account, session);
  } else {
    await checkGrant(account, session, "write");
  }
  if (ring.epoch < session.keyEpoch) {
    throw new Refused(
      "The key of this session was changed, and you have not been given the new one yet. Ask its owner to open the session.",
    );
  }
  return opened;
}

/** Begins a new epoch: a key for the owner, for every user with a share, and for the machine that hosts the session. */
export async function rekey(account: Account, session: Session, members: Members = {}): Promise<Opened> {
  // Two at once would take each other's people for unfinished ones.
  return account.store.lock("rekey", () => rekeyed(account, session, members));
}

async function rekeyed(account: Account, given: Session, members: Members): Promise<Opened> {
  const { client, store } = account;
  let [read, replaced] = [given, given.keyEpoch];
  for (let tries = 0; tries < 3; tries++) {
    const opened = await readable(account, read);
    const { session, ring: before } = opened;
    if (before.epoch !== session.keyEpoch) {
      throw new Distrust(
        `The server gave you another key of session ${session.ref} than the one of epoch ${session.keyEpoch}.`,
      );
    }
    // Another program of the owner may have been faster. It may not have known of the removal.
    const isNobodyGone = !members.without && !members.level && (await removedShares(store, session.id)).length === 0;
    if (before.epoch > replaced && isNobodyGone && !(await hasOldKey(account, session))) return opened;
    const waiting = await waitingFor(store, session.id, before);
    const recipients = await grantedRecipients(account, session, before, members, waiting?.recipients);
    const ring = before.next();
    const digest = (await ring.digestOf(ring.epoch)) ?? "";
    const titled = await titleForNewKey(account, session, before, ring);
    await beginRekey(store, session.id, { recipients, epoch: ring.epoch, ring: digest, before: waiting });
    const title = titled && { metadata: titled.metadata, expectedMetadataVersion: session.metadataVersion };
    const body = { ...(await update(account, session, ring)), ...title };
    try {
      await client.data(client.http.PATCH("/v1/sessions/{id}", { params: { path: { id: session.id } }, body }));
    } catch (error) {
      if (!isProblem(error, "VERSION_MISMATCH")) throw error;
      await endRekey(store, session.id, waiting);
      [read, replaced] = [await readSession(account, session.id), session.keyEpoch];
      continue;
    }
    await rememberSession(account, session, ring, body.hostKey === undefined);
    // Who did not get it gets it with the next command.
    if (await passOn(account, session, ring, recipients)) await endRekey(store, session.id);
    // As it is now, and not as the server may say.
    const now = { ...session, keyEpoch: ring.epoch, rekeyNeeded: false };
    if (!titled) return { session: now, ring };
    await noteTitle(account, session.id, titled.seen);
    return { session: { ...now, metadata: titled.metadata, metadataVersion: titled.seen.version }, ring };
  }
  throw new Refused("Other programs of yours change the key of this session at the same time. Try again.");
}

async function update(account: Account, session: Session, ring: KeyRing): Promise<UpdateSession> {
  // A machine that was added a moment ago would be left without the key.
  const { contents, list } = await account.own(0);
  const { signer } = account.keys;
  const machine = hostOf(session);
  const entry = machine === undefined ? undefined : list.machine(machine);
  return {
    encryptionKey: await sealRing(ring, await contents.publicKey(), binding(account, session), signer),
    ...(entry &&
      machine !== undefined && {
        hostKey: await sealRing(ring, entry.boxKey, bindings.host(session.id, machine, contents.epoch), signer),
      }),
    expectedKeyEpoch: session.keyEpoch,
    contentEpoch: contents.epoch,
  };
}

/** Gives the users their keys whom a program that was ended has left without, and sessions a new key from which it removed somebody. */
export async function finish(account: Account): Promise<void> {
  const { rekeys, removed } = await unfinished(account.store);
  let failed: unknown;
  const attempt = (run: Promise<void>): Promise<void> => run.catch((error: unknown) => void (failed ??= error));
  for (const id of Object.keys(rekeys)) await attempt(finishRekey(account, id));
  for (const [id, users] of Object.entries(removed)) await attempt(finishShareRemoval(account, id, users));
  if (failed) throw failed;
}

async function finishRekey(account: Account, id: string): Promise<void> {
  const { store } = account;
  await store.lock("rekey", async () => {
    // Another tab may have finished it, or begun another one.
    if (!(await unfinished(store)).rekeys[id]) return;
    const read = await stillThere(account, id);
    if (!read) return endRekey(store, id);
    await account.own(FRESH);
    const { session, ring } = await readable(account, read);
    const waiting = await waitingFor(store, id, ring);
    // Another program has made this ring, and has given it to the people.
    if (!waiting) return endRekey(store, id);
    if (await hasOldKey(account, session)) {
      // Who must not read what comes has this key too: those who wait get the next one.
      await rekeyed(account, session, {});
      return;
    }
    const gone = new Set(await removedShares(store, id));
    const recipients = Object.fromEntries(Object.entries(waiting.recipients).filter(([user]) => !gone.has(user)));
    if (await passOn(account, session, ring, recipients)) await endRekey(store, id);
  });
}

async function finishShareRemoval(account: Account, id: string, users: string[]): Promise<void> {
  const session = await stillThere(account, id);
  if (session) await rekey(account, session, { without: users });
  await endShareRemoval(account.store, id);
}

async function stillThere(account: Account, id: string): Promise<Session | undefined> {
  try {
    return await readSession(account, id);
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}
