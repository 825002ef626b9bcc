// New keys of sessions: when one is due, and how all who may have it get it.

import { isNotFound, isProblem, Refused, SealError } from "../../errors.js";
import { LAST_EPOCH, type KeyRing } from "../../protocol/seal/ring.js";
import { bindings, openRing, sealRing, type SignedRing } from "../../protocol/seal/signed-ring.js";
import type { Context } from "../context.js";
import { FRESH } from "../lists.js";
import type { Own } from "../own.js";
import {
  beginRekey,
  endMissing,
  endRekey,
  endShareRemoval,
  isMissing,
  noteMissing,
  removedShares,
  unfinished,
  waitingFor,
} from "../unfinished.js";
import {
  beginReplacing,
  endReplacing,
  hostOf,
  isOwner,
  knownSession,
  lostKeys,
  mayAsk,
  mayReplaceLost,
  noteCause,
  noteUsed,
  rememberSession,
  type Session,
} from "./known.js";
import { binding, epochIn, isMadeNow, newest, olderKey, readSession, type Opened } from "./read.js";
import { grantedRecipients, passOn, type Members } from "./share.js";
import { noteTitle, titleForNewKey } from "./titles.js";
import type { components } from "../../openapi.js";

type UpdateSession = components["schemas"]["UpdateSession"];

/** The ring of an own session, if no device that was removed since can have it: it was sealed to the newest content key, by a device that
 * is listed. */
export async function freshRing(context: Context, session: Session): Promise<SignedRing | undefined> {
  const sealed = session.encryptionKey;
  if (!sealed) return undefined;
  const { contents } = await context.own();
  try {
    const signed = await openRing(sealed, await contents.pair(), binding(context, session));
    return (await isMadeNow(context, session, signed.signer)) ? signed : undefined;
  } catch (error) {
    if (error instanceof SealError) return undefined;
    throw error;
  }
}

/** Whether the machine that hosts the session is not in the account's list any more. */
export function isWithoutItsHost({ list }: Own, session: Session): boolean {
  const host = hostOf(session);
  return session.hosted === true && (host === undefined || !list.machine(host));
}

/** Whether a machine that was removed has the key of this epoch. */
async function mayItsHostRead(context: Context, session: Session, epoch: number): Promise<boolean> {
  if (!isWithoutItsHost(await context.own(), session)) return false;
  const known = await knownSession(context, session.id);
  return known?.hostless === undefined || epoch < known.hostless;
}

/** Why a session is to get a new key: a device, or the machine that hosts it, is not in the account's list any more; its key was made for a
 * server that had lost some, and the one above all lost ones is not made; or the server says so. What the list proves makes one always. What the server says may make one, at most once an hour and session, because a ring's size
 * is limited, and prevents none. */
export type Due = "removal" | "removal_of_host" | "interrupted" | "asked";

/** Why an own session is to get a new key before anything is written there. */
export async function due(context: Context, session: Session): Promise<Due | undefined> {
  if (!isOwner(session) || !session.encryptionKey) return undefined;
  const signed = await freshRing(context, session);
  if (!signed) return "removal";
  if (await mayItsHostRead(context, session, signed.ring.epoch)) return "removal_of_host";
  const isByMachine = (await context.own()).list.device(signed.signer)?.role === "machine";
  // A person's device leaves the floor only where another key follows at once.
  if (!isByMachine && signed.ring.floor < signed.ring.epoch) return "interrupted";
  if (!session.rekeyNeeded) return undefined;
  // A machine makes a key because of a list that was signed, and gives it to no people. So one may follow each of its keys.
  return isByMachine || (await mayAsk(context, session.id, signed.ring.epoch)) ? "asked" : undefined;
}

/** Whether a session has a newer key than this guest was given, as the server says. An epoch that no ring has is made up. An owner's ring
 * comes in the same answer, and is judged by what was signed. */
export const lacksKey = (session: Session, ring: KeyRing): boolean =>
  !isOwner(session) && session.keyEpoch > ring.epoch && session.keyEpoch <= LAST_EPOCH;

/** Begins a new epoch: a key for the owner, for every user with a share, and for the machine that hosts the session. */
export async function rekey(context: Context, session: Session, members: Members = {}): Promise<Opened> {
  // Two at once would take each other's users for unfinished ones.
  return context.store.lock("rekey", () => rekeyed(context, session, members));
}

async function rekeyed(context: Context, given: Session, members: Members): Promise<Opened> {
  const { client, store } = context;
  // It decides whose shares count.
  await context.own(FRESH);
  // What the server calls its epoch is no proof that another program was faster.
  let [read, replaced] = [given, await epochIn(context, given)];
  // The key that was to be above lost ones. The server may have taken some of the keys before it.
  let least = 0;
  for (let tries = 0; tries < 3; tries++) {
    const { session, ring: before, known } = await newest(context, read);
    const lost = await lostKeys(known, before);
    // Another program of the owner may have been faster. It may not have known of the removal.
    const removed = await removedShares(store, session.id);
    const isNoOneGone = !members.without && !members.level && removed.length === 0;
    const why = await due(context, session);
    if (before.epoch > replaced && isNoOneGone && why === undefined && lost === 0 && before.epoch >= least)
      return { session, ring: before };
    // What a person does waits for no hour, and neither does another key in the place of one that was used here: a server cannot show it again
    // once it is replaced, as it can show an old ring.
    const isOld = before.epoch < (known?.epoch ?? 1);
    if (lost > 0 && isNoOneGone && isOld && least === 0 && !mayReplaceLost(known)) throw olderKey(session);
    const waiting = await waitingFor(store, session.id, before);
    // Who waits for a lost key still does if the server has only hidden it.
    const kept = lost > 0 ? (await unfinished(store)).rekeys[session.id] : waiting;
    const recipients = await grantedRecipients(context, session, before, members, waiting?.recipients);
    // A server that was restored gets a key for each epoch that it has lost, and then the one that is used.
    const rings: KeyRing[] = [];
    let last = before;
    // The last key of all is the one that is used.
    while (last.epoch < Math.min(known?.epoch ?? 1, LAST_EPOCH - 1)) rings.push((last = last.nextInBetween()));
    if (last.epoch === LAST_EPOCH) {
      throw new Refused(`Session ${session.ref} has used all of its ${LAST_EPOCH} keys. Start a new session.`);
    }
    const ring = last.next();
    rings.push(ring);
    const digest = (await ring.digestOf(ring.epoch)) ?? "";
    const titled = await titleForNewKey(context, session, before, ring);
    await beginRekey(store, session.id, { recipients, epoch: ring.epoch, ring: digest, before: kept });
    const renewed = members.renewed ?? [];
    // Removals by this account are known without the server.
    const isAsked = why === "asked" && isNoOneGone && renewed.length === 0;
    await noteCause(context, session.id, ring.epoch, isAsked, renewed);
    const people = Object.keys(recipients);
    if (lost > 0) await beginReplacing(context, session.id, ring, people);
    const title = titled && { metadata: titled.metadata, expectedMetadataVersion: session.metadataVersion };
    let [isHostless, isBegun] = [false, false];
    try {
      for (const next of rings) {
        const body = {
          ...(await update(context, session, next)),
          expectedKeyEpoch: next.epoch - 1,
          ...(next === ring && title),
        };
        await client.call("PATCH", "/v1/sessions/{id}", { path: { id: session.id }, body });
        [isHostless, isBegun] = [body.hostKey === undefined, true];
      }
    } catch (error) {
      if (!isProblem(error, "VERSION_MISMATCH")) throw error;
      await endRekey(store, session.id, kept);
      if (lost > 0 && !isBegun) await endReplacing(context, session.id, known?.tried);
      if (lost > 0) least = ring.epoch;
      [read, replaced] = [await readSession(context, session.id), before.epoch];
      continue;
    }
    await rememberSession(context, session, ring, isHostless);
    await noteUsed(context, session.id, ring, people);
    // The key that these waited for is not the newest one any more.
    if (kept) await beginRekey(store, session.id, { recipients, epoch: ring.epoch, ring: digest });
    if (lost > 0) context.notices.give({ is: "keys_replaced", session: session.ref, lost });
    await endShareRemoval(store, session.id, removed);
    // A user who did not get it gets it with the next command.
    if (await passOn(context, session, ring, recipients)) await endRekey(store, session.id);
    // As it is now, whatever the server says.
    const now = { ...session, keyEpoch: ring.epoch, rekeyNeeded: false };
    if (!titled) return { session: now, ring };
    await noteTitle(context, session.id, titled.seen);
    return { session: { ...now, metadata: titled.metadata, metadataVersion: titled.seen.version }, ring };
  }
  throw overtaken();
}

export const overtaken = (): Refused =>
  new Refused("Other programs of yours change the key of this session at the same time. Try again.");

async function update(context: Context, session: Session, ring: KeyRing): Promise<UpdateSession> {
  const { signer } = context.keys;
  const machine = hostOf(session);
  let { contents, list } = await context.own(FRESH);
  // A machine that was added a moment ago would be left without the key.
  if (machine !== undefined && !list.machine(machine)) ({ contents, list } = await context.own(0));
  const entry = machine === undefined ? undefined : list.machine(machine);
  return {
    encryptionKey: await sealRing(ring, await contents.publicKey(), binding(context, session), signer),
    ...(entry &&
      machine !== undefined && {
        hostKey: await sealRing(ring, entry.boxKey, bindings.host(session.id, machine, contents.epoch), signer),
      }),
    contentEpoch: contents.epoch,
  };
}

/** Completes what a program that was ended left undone: users get their keys, and sessions that lost a user get a new key. */
export async function finish(context: Context): Promise<void> {
  const { rekeys, removed } = await unfinished(context.store);
  let failed: unknown;
  const attempt = (run: Promise<void>): Promise<void> => run.catch((error: unknown) => void (failed ??= error));
  for (const id of Object.keys(rekeys)) await attempt(finishRekey(context, id));
  for (const id of Object.keys(removed)) await attempt(finishShareRemoval(context, id));
  if (failed) throw failed;
}

async function finishRekey(context: Context, id: string): Promise<void> {
  const { store } = context;
  await store.lock("rekey", async () => {
    // Another tab may have finished it, or begun another one.
    if (!(await unfinished(store)).rekeys[id]) return;
    const read = await stillThere(context, id);
    if (!read) return;
    await context.own(FRESH);
    const { session, ring, known } = await newest(context, read);
    if ((await lostKeys(known, ring)) > 0) {
      await rekeyed(context, session, {});
      return;
    }
    const waiting = await waitingFor(store, id, ring);
    // Another program has made this ring, and has given it to the people.
    if (!waiting) return endRekey(store, id);
    if ((await due(context, session)) !== undefined) {
      // Who must not read what comes has this key too: those who wait get the next one.
      await rekeyed(context, session, {});
      return;
    }
    const gone = new Set(await removedShares(store, id));
    const recipients = Object.fromEntries(Object.entries(waiting.recipients).filter(([user]) => !gone.has(user)));
    if (await passOn(context, session, ring, recipients)) await endRekey(store, id);
  });
}

async function finishShareRemoval(context: Context, id: string): Promise<void> {
  const { store } = context;
  await store.lock("rekey", async () => {
    // Another tab may have finished it.
    if ((await removedShares(store, id)).length === 0) return;
    const session = await stillThere(context, id);
    if (session) await rekeyed(context, session, {});
  });
}

/** A session of which something is not finished, unless the server calls it missing. That ends nothing here. */
export async function stillThere(context: Context, id: string): Promise<Session | undefined> {
  const { notices, store } = context;
  if (await isMissing(store, id)) return undefined;
  try {
    const session = await readSession(context, id);
    await endMissing(store, id);
    return session;
  } catch (error) {
    if (!isNotFound(error)) throw error;
    await noteMissing(store, id);
    notices.give({ is: "session_missing", session: id });
    return undefined;
  }
}
