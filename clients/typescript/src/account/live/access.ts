// What a guest may do with the agent of a live session. A share lets a person read; the machine obeys only what the owner has signed.

import { newId } from "../../client.js";
import { Refused } from "../../errors.js";
import { sleep } from "../../retry.js";
import { accountDigest } from "../../protocol/lists/list.js";
import type { May } from "../../protocol/transcript/body.js";
import type { Taken } from "../../protocol/transcript/item.js";
import type { Context } from "../context.js";
import { knownList } from "../lists.js";
import { knownSession, rememberSession, type Session } from "../sessions/known.js";
import { freshRing, isWithoutItsHost, stillThere } from "../sessions/rekey.js";
import { sharesOf, type Share } from "../sessions/share.js";
import { beginRevocation, endRevocation, unfinished, type Revocation } from "../unfinished.js";
import { LiveSession } from "./index.js";
import { CLOCKS, Versions } from "./versions.js";

/** How long the machine may take to answer, in milliseconds. */
const RECEIPT_WITHIN = 15_000;

/** The machine's answer to a change of rights. `confirmed`: it applies; `nothing`: there was nothing to send; `unconfirmed`: the machine
 * has not answered, and does what it last knew until it does. An object: it has refused, and does what it last knew. */
export type MachineReceipt = "confirmed" | "unconfirmed" | "nothing" | Extract<Taken, { is: "rejected" }>;

/** Notes that a person's right is to be taken away, before anything else is done: whatever happens, the machine receives it. `isRemoved`:
 * their share goes too. */
export async function beginTaking(context: Context, session: Session, user: string, isRemoved: boolean): Promise<void> {
  if (!session.hosted || session.accessLevel !== "owner") return;
  // Whose it is, and its machine, are known from now on, whatever the server says later.
  await rememberSession(context, session, undefined);
  const version = await Versions.of(context, session.id).toTake(undefined);
  // Another program may have made the newest key since this one has used one.
  const shown = (await freshRing(context, session))?.ring.epoch ?? 1;
  const newest = Math.max((await knownSession(context, session.id))?.epoch ?? 1, shown);
  const keyEpoch = isRemoved ? newest : undefined;
  await beginRevocation(context.store, session.id, user, { localId: newId(), version, keyEpoch });
}

/** To take a right away needs no new list of theirs, which a server could spoil: the machine has said whose account it is, or this device
 * knows it. */
async function grant(
  context: Context,
  live: LiveSession,
  user: string,
  may: May,
  { localId, version, keyEpoch }: Revocation,
): Promise<void> {
  const known = may === "none" ? live.view.state?.access.find((grant) => grant.user === user) : undefined;
  const list = (may === "none" && (await knownList(context.store, user))) || undefined;
  const account = known?.account ?? (await accountDigest((list ?? (await context.people.list(user))).body.account));
  // One whose share was removed has the session's key, so the machine writes nothing more under it.
  const removed = may === "none" && keyEpoch !== undefined;
  const value = { user, account, may, version, ...(removed && { removed, keyEpoch }) };
  await live.control({ action: "access", value }, localId);
}

/** Tells the session's machine what this person may do. `isFirst`: they have had no share of it, as the server says. */
export async function tellMachine(
  context: Context,
  session: Session,
  user: string,
  may: May,
  isFirst: boolean,
): Promise<MachineReceipt> {
  if (!session.hosted || session.accessLevel !== "owner") return "nothing";
  const live = await LiveSession.open(context, session.id, { isForPerson: false });
  const { state } = live.view;
  const known = state?.access.find((grant) => grant.user === user);
  // A right that was given may not be in the state that the server shows, so its removal is always sent, except where this device has given
  // none.
  const hasGivenNone = ((await knownSession(context, session.id))?.given ?? 0) === 0;
  const isUnknown = state !== undefined && known === undefined && isFirst && hasGivenNone;
  const taking = (await unfinished(context.store)).revoked[session.id]?.[user];
  if ((known?.may === may && may !== "none" && !taking) || (isUnknown && may === "none")) return "nothing";
  const versions = Versions.of(context, session.id);
  const version = may === "none" ? await versions.toTake(known) : await versions.toGive(known, taking);
  const keyEpoch = may === "none" ? taking?.keyEpoch : undefined;
  const order = { localId: newId(), version, keyEpoch };
  // What was taken away before counts no more when something is given.
  if (may === "none") await beginRevocation(context.store, session.id, user, order);
  else await endRevocation(context.store, session.id, user);
  await grant(context, live, user, may, order);
  const receipt = await receiptFor(live, order.localId);
  if (receipt === "confirmed") await endRevocation(context.store, session.id, user);
  if (may !== "none" || receipt === "confirmed") return receipt;
  // A machine refuses a version that is ahead of its clock, and one of the two clocks here may be ahead.
  const earlier = await versions.toTake(known, version);
  const again = { localId: newId(), version: earlier, keyEpoch };
  if (isStale(receipt) && earlier < version) {
    await beginRevocation(context.store, session.id, user, again);
    await grant(context, live, user, may, again);
    const second = await receiptFor(live, again.localId);
    if (second === "confirmed") await endRevocation(context.store, session.id, user);
    return second;
  }
  // The machine is away, and may refuse the other one later.
  if (receipt === "unconfirmed" && version - earlier > CLOCKS) await grant(context, live, user, may, again);
  return receipt;
}

const isStale = (receipt: MachineReceipt): boolean => typeof receipt === "object" && receipt.code === "stale";

/** Waits for the machine's answer to a command. */
async function receiptFor(live: LiveSession, localId: string): Promise<MachineReceipt> {
  const stop = new AbortController();
  const late = sleep(RECEIPT_WITHIN, stop.signal).then(
    () => stop.abort(),
    () => undefined,
  );
  try {
    for await (const _changed of live.follow({ signal: stop.signal })) {
      const receipt = receiptOf(live.taken(localId));
      if (receipt) return receipt;
    }
    return "unconfirmed";
  } finally {
    stop.abort();
    await late;
  }
}

/** Takes back what removed devices have let people do in a live session. It waits for no machine: what does not arrive is sent again. */
export async function takeBack(context: Context, id: string): Promise<void> {
  const live = await LiveSession.open(context, id, { isForPerson: false });
  if (!(await live.loadState())) throw new Refused("Its newest messages do not say what people may do there.");
  const { list } = await context.own();
  for (const known of live.view.state?.access ?? []) {
    if (known.may === "none" || known.key === undefined || list.commands(known.key)) continue;
    // Their share may have been removed as well.
    const keyEpoch = (await unfinished(context.store)).revoked[id]?.[known.user]?.keyEpoch;
    const order = { localId: newId(), version: await Versions.of(context, id).toTake(known), keyEpoch };
    await beginRevocation(context.store, id, known.user, order);
    await grant(context, live, known.user, "none", order);
    context.notices.give({ is: "right_taken_back", session: id, user: known.user });
  }
}

/** What a receipt says. Undefined: the machine has not decided yet. */
export function receiptOf(taken: Taken | undefined): MachineReceipt | undefined {
  if (taken?.is === "rejected") return taken;
  return taken?.is === "done" ? "confirmed" : undefined;
}

/** Sends again which users may not command a machine any more, if that was refused or has not arrived. */
export async function tellAgain(context: Context): Promise<void> {
  let failed: unknown;
  for (const [session, users] of Object.entries((await unfinished(context.store)).revoked)) {
    for (const [user, revocation] of Object.entries(users)) {
      await tellOneAgain(context, session, user, revocation).catch((error: unknown) => (failed ??= error));
    }
  }
  if (failed) throw failed;
}

async function tellOneAgain(
  context: Context,
  id: string,
  user: string,
  { localId, version: noted, keyEpoch }: Revocation,
): Promise<void> {
  const end = (): Promise<void> => endRevocation(context.store, id, user);
  const session = await stillThere(context, id);
  if (!session) return;
  // No agent works there any more.
  if (isWithoutItsHost(await context.own(), session)) return end();
  const live = await LiveSession.open(context, id, { isForPerson: false });
  await live.loadState();
  const taken = live.taken(localId);
  const known = live.view.state?.access.find((grant) => grant.user === user);
  const isNewer = known !== undefined && known.version >= noted;
  // One that says nothing of the share does not say which keys are old.
  const isWhole = keyEpoch === undefined || (known?.removed === true && (known.keyEpoch ?? 0) >= keyEpoch);
  const hasEnded = known?.may === "none" && isWhole;
  if (taken?.is === "done" || (isNewer && hasEnded)) return end();
  const isSuperseded = taken?.is === "rejected" && taken.code === "superseded";
  // What counts is not known, and another device may have given it.
  if (isSuperseded && live.view.state === undefined) return;
  const isOutrun = isNewer || isSuperseded;
  // Another device has given them something later, as the machine has signed it. A share to read gives nothing here.
  const mayCommand = (share: Share): boolean => share.userId === user && share.accessLevel !== "view";
  if (isNewer && known.may !== "none" && (await sharesOf(context, id)).some(mayCommand)) return end();
  // The machine reads it when it is back.
  if (taken && taken.is !== "rejected") return;
  // A refused command stays refused. One that may have arrived is not sent under a new id.
  const next = taken ? newId() : localId;
  // What was refused needs another version, and so does one that a clock had made while it was ahead.
  const stale = taken?.code === "stale" ? noted : undefined;
  const version = await Versions.of(context, id).toTake(known, stale);
  const isNew = isOutrun || taken !== undefined || noted > version;
  const order = { localId: next, version: isNew ? version : noted, keyEpoch };
  await beginRevocation(context.store, id, user, order);
  await grant(context, live, user, "none", order);
}
