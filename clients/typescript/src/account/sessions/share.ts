// Who gets the key of a session. The server names users; signatures say whom the owner, or an admin of the session, has chosen.

import { Distrust, isNotFound, Refused, SealError } from "../../errors.js";
import type { KeyRing } from "../../protocol/seal/ring.js";
import { SharedRing, type Admin, type ShareLevel } from "../../protocol/seal/share.js";
import type { Context } from "../context.js";
import { everHad, FRESH } from "../lists.js";
import { removedShares, waitingFor, type Recipients } from "../unfinished.js";
import { hasOther, hostOf, isOwner, knownSession, mayRenew, peopleOf, peopleOfLost, type Session } from "./known.js";
import type { components } from "../../openapi.js";

export type Share = components["schemas"]["Share"];

/** Changes of a session's users while it gets a new key. */
export interface Members {
  without?: readonly string[];
  /** Those who have removed a device since they got the key. */
  renewed?: readonly string[];
  level?: { user: string; level: ShareLevel };
}

/** All shares of a session. Only for its owner and admins. */
export async function sharesOf(context: Context, session: string): Promise<Share[]> {
  const { client } = context;
  const shares: Share[] = [];
  const page = (cursor?: string) => {
    const params = { path: { id: session }, query: { limit: 100, ...(cursor !== undefined && { cursor }) } };
    return client.call("GET", "/v1/sessions/{id}/shares", params);
  };
  for await (const { shares: some } of client.pages(page)) shares.push(...some);
  return shares;
}

const stranger = (session: Session): Distrust =>
  new Distrust(
    `The key of session ${session.ref} was not given to you by a device of its owner, so it was not used. Do not trust this server.`,
  );

/** Checks who gave this user the key of another user's session. True: their devices are listed now. */
export async function checkGrant(context: Context, session: Session, why: "read" | "write"): Promise<boolean> {
  const { client, people, userId } = context;
  const { list: own, contents } = await context.own();
  if (!session.encryptedKey) throw new SealError("format", `The server gave no key of session ${session.ref}.`);
  const shared = SharedRing.fromText(session.encryptedKey);
  const { admin } = shared;
  const signer = await shared.signer(session.id, userId, own.body.account);
  const granted = admin ? await admin.grantedBy(session.id) : signer;
  if (signer === undefined || granted === undefined) throw stranger(session);
  const owner = await people.list(session.ownerId, why === "write" ? FRESH : undefined);
  let isCurrent = owner.commands(granted);
  if (!isCurrent && !(await everHad(client, session.ownerId, owner.body.account, granted))) throw stranger(session);
  if (admin) {
    // With the next key the owner grants it directly. An admin of an earlier epoch may have lost that.
    if (admin.epoch !== shared.epoch) throw stranger(session);
    const list = await people.list(admin.user);
    const isListed = list.commands(signer);
    const isKnown = isListed || (await everHad(client, admin.user, admin.account, signer));
    if (list.body.account !== admin.account || !isKnown) throw stranger(session);
    isCurrent &&= isListed;
  }
  if (why === "read") return isCurrent;
  const pair = await contents.pair();
  const isNewest = await shared.open(pair, session.id, userId, hostOf(session)).then(
    () => true,
    () => false,
  );
  // A machine that was removed keeps the key that it had.
  const host = hostOf(session);
  if (session.hosted && (host === undefined || owner.machine(host) === undefined)) {
    throw new Refused(
      `The machine of session ${session.ref} no longer belongs to its owner, so what you write would not be read. Nothing was written.`,
    );
  }
  // Who granted it knew an older list of the owner than there is: a device that was removed since may have the key.
  if (!isCurrent || !isNewest || shared.contentEpoch < owner.body.contentEpoch) {
    throw new Refused(
      `A device was removed since you got the key of session ${session.ref}, and it may have that key. Nothing was written. Ask the ` +
        "session's owner to open it.",
    );
  }
  return isCurrent;
}

/** The users whom the owner, or an admin of the session, has given the present key, and those who still wait for it here (`waiting`).
 * Throws when it cannot be found out now; a user without a good signature is left out. */
export async function grantedRecipients(
  context: Context,
  session: Session,
  ring: KeyRing,
  members: Members,
  waiting: Recipients = {},
): Promise<Recipients> {
  const gone = new Set([...(await removedShares(context.store, session.id)), ...(members.without ?? [])]);
  const known = await knownSession(context, session.id);
  const floor = Math.max(ring.floor, known?.floor ?? 1);
  const epoch = Math.max(ring.epoch, known?.epoch ?? 1);
  const leaveOut = (user: string): void => context.notices.give({ is: "left_out", session: session.ref, user });
  // This ring has another key in the place of the one that these people had.
  const people = (await hasOther(known, ring)) ? new Set(known?.used?.people) : undefined;
  const levels = new Map(Object.entries(waiting));
  const recipients: Recipients = {};
  const byAdmins: { share: Share; level: ShareLevel; admin: Admin }[] = [];
  const named = await sharesOf(context, session.id);
  for (const share of named) {
    if (gone.has(share.userId)) continue;
    if (people && !people.has(share.userId)) {
      leaveOut(share.userId);
      continue;
    }
    const granted = await orUndefined(granting(context, share, floor, epoch));
    const waits = levels.get(share.userId);
    if (granted?.admin) byAdmins.push({ share, level: granted.level, admin: granted.admin });
    else if (granted) recipients[share.userId] = granted.level;
    else if (waits) recipients[share.userId] = waits;
    else leaveOut(share.userId);
  }
  for (const user of await peopleOfLost(known, ring)) {
    if (!gone.has(user) && !named.some(({ userId }) => userId === user)) leaveOut(user);
  }
  const admins = { ...recipients };
  for (const { share, level, admin } of byAdmins) {
    const isAdmin = admins[admin.user] === "admin" && level !== "admin";
    if (isAdmin && (await orUndefined(isGrantedByAdmin(context, share, admin)))) recipients[share.userId] = level;
    else leaveOut(share.userId);
  }
  if (members.level) {
    const { user, level } = members.level;
    if (!recipients[user])
      throw new Refused(`No device of yours has shared this session with user ${user}. Share it with them.`);
    recipients[user] = level;
  }
  return recipients;
}

/** A user who cannot be checked is left out, but no user loses access because of a connection. */
async function orUndefined<T>(found: Promise<T>): Promise<T | undefined> {
  try {
    return await found;
  } catch (error) {
    const isAboutThem =
      error instanceof Distrust || error instanceof Refused || error instanceof SealError || isNotFound(error);
    if (!isAboutThem) throw error;
    return undefined;
  }
}

async function granting(
  context: Context,
  share: Share,
  floor: number,
  epoch: number,
): Promise<{ level: ShareLevel; admin?: Admin } | undefined> {
  const shared = SharedRing.fromText(share.encryptedKey);
  const signer = await shared.signer(share.sessionId, share.userId, await context.pins.accountKey(share.userId));
  // A share that was removed was granted before a person's device made a new key.
  if (signer === undefined || shared.epoch < floor || shared.epoch > epoch) return undefined;
  if (shared.admin) return { level: shared.level, admin: shared.admin };
  return (await context.own()).list.commands(signer) ? { level: shared.level } : undefined;
}

async function isGrantedByAdmin(context: Context, share: Share, admin: Admin): Promise<boolean> {
  const shared = SharedRing.fromText(share.encryptedKey);
  const signer = await shared.signer(share.sessionId, share.userId, await context.pins.accountKey(share.userId));
  const list = await context.people.list(admin.user, FRESH);
  return signer !== undefined && list.body.account === admin.account && list.commands(signer);
}

/** `people` has the key of an own session by a grant of the owner, or is to get it from this device. `renewed` has removed a device since, which may have the key. Only shares
 * count that a device of the owner has granted, so no other user can force new keys on the session, and each person forces at most one an
 * hour. */
export async function guestsOf(
  context: Context,
  session: Session,
  ring: KeyRing,
): Promise<{ people: string[]; renewed: string[] }> {
  const { list: own } = await context.own();
  const known = await knownSession(context, session.id);
  const floor = Math.max(ring.floor, known?.floor ?? 1);
  const before = new Set(await peopleOf(known, ring));
  const waiting = await waitingFor(context.store, session.id, ring);
  const people = new Set(Object.keys(waiting?.recipients ?? {}));
  const renewed: string[] = [];
  for (const share of await sharesOf(context, session.id)) {
    const user = share.userId;
    // A user whose devices cannot be read now must not stop the owner.
    const list = await context.people.listSince(user, share.listVersion ?? null, FRESH).catch(() => undefined);
    if (!list) {
      if (before.has(user)) people.add(user);
      continue;
    }
    try {
      const shared = SharedRing.fromText(share.encryptedKey);
      const signer = await shared.signer(share.sessionId, user, list.body.account);
      if (signer === undefined || !own.commands(signer)) continue;
      if (shared.recipientEpoch < list.body.contentEpoch && shared.epoch === ring.epoch) renewed.push(user);
      if (!shared.admin && shared.epoch >= floor && shared.epoch <= ring.epoch) people.add(user);
    } catch (error) {
      if (!(error instanceof SealError)) throw error;
    }
  }
  return { people: [...people], renewed: await mayRenew(context, session.id, ring.epoch, renewed) };
}

/** Seals a session's ring to a user, after checking the user's devices, with a signature that says who may have it. */
export async function sealedFor(
  context: Context,
  session: Session,
  user: string,
  level: ShareLevel,
  ring: KeyRing,
): Promise<{ encryptedKey: string; contentEpoch: number }> {
  const { list: own } = await context.own();
  const list = await context.people.list(user, FRESH);
  const admin = isOwner(session)
    ? undefined
    : await SharedRing.fromText(session.encryptedKey ?? "").asAdmin(context.userId, own.body.account);
  const owner = isOwner(session) ? own : await context.people.list(session.ownerId, FRESH);
  const epochs = { contentEpoch: owner.body.contentEpoch, recipientEpoch: list.body.contentEpoch };
  const grant = {
    session: session.id,
    recipient: user,
    machine: hostOf(session),
    account: list.body.account,
    level,
    ...epochs,
  };
  const shared = await SharedRing.seal(ring, list.body.contentPublicKey, grant, context.keys.signer, admin);
  return { encryptedKey: shared.toText(), contentEpoch: list.body.contentEpoch };
}

/** Seals the ring to these users, and stores it in their shares. False: at least one has to be tried again. */
export async function passOn(context: Context, session: Session, ring: KeyRing, recipients: Recipients): Promise<boolean> {
  const { client, notices } = context;
  let isDone = true;
  for (const [user, level] of Object.entries(recipients)) {
    try {
      const body = await sealedFor(context, session, user, level, ring);
      const params = { path: { id: session.id, userId: user } };
      await client.call("PATCH", "/v1/sessions/{id}/shares/{userId}", { ...params, body });
      notices.give({ is: "key_given", session: session.id, user });
    } catch (error) {
      notices.give({ is: "key_not_given", session: session.id, user, error });
      // The share was removed meanwhile, or the user's key cannot be trusted: the others get theirs.
      if (!isNotFound(error) && !(error instanceof Distrust) && !(error instanceof Refused)) isDone = false;
    }
  }
  return isDone;
}
