// What a guest may do with the agent of a live session. A share lets a person read; the machine obeys only what the owner has signed.

import { newId } from "../../client.js";
import { isNotFound, Refused } from "../../errors.js";
import { sleep } from "../../retry.js";
import { accountDigest } from "../../protocol/lists/list.js";
import type { May } from "../../protocol/transcript/body.js";
import type { Taken } from "../../protocol/transcript/item.js";
import type { Context } from "../context.js";
import type { Session } from "../sessions/known.js";
import { readSession } from "../sessions/read.js";
import { isWithoutItsHost } from "../sessions/rekey.js";
import { sharesOf, type Share } from "../sessions/share.js";
import { beginRevocation, endRevocation, unfinished, type Revocation } from "../unfinished.js";
import { LiveSession } from "./index.js";

/** How long the machine may take to answer, in milliseconds. */
const RECEIPT_WITHIN = 15_000;

/** The machine's answer to a change of rights. `confirmed`: it applies; `nothing`: there was nothing to send; `unconfirmed`: the machine
 * has not answered, and does what it last knew until it does. An object: it has refused, and does what it last knew. */
export type MachineReceipt = "confirmed" | "unconfirmed" | "nothing" | Extract<Taken, { is: "rejected" }>;

/** Notes that a person's right is to be taken away, before anything else is done: whatever happens, the machine receives it. */
export async function beginTaking(context: Context, session: Session, user: string): Promise<void> {
  if (!session.hosted || session.accessLevel !== "owner") return;
  await beginRevocation(context.store, session.id, user, { localId: newId(), version: context.credential.now() });
}

/** To take a right away needs no list of theirs, which a server could spoil: the machine has said whose account it is. */
async function grant(
  context: Context,
  live: LiveSession,
  user: string,
  may: May,
  version: number,
  localId: string,
): Promise<void> {
  const known = may === "none" ? live.view.state?.access.find((grant) => grant.user === user) : undefined;
  const account = known?.account ?? (await accountDigest((await context.people.list(user)).body.account));
  const value = { user, account, may, version };
  await live.control({ action: "access", value }, localId);
}

/** Tells the session's machine what this person may do. `isFirst`: they have had no share of it. */
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
  const isUnknown = state !== undefined && known === undefined && isFirst;
  // A right that was given may not be in the last state, so its removal is always sent.
  const isTaking = (await unfinished(context.store)).revoked[session.id]?.[user] !== undefined;
  if ((known?.may === may && may !== "none" && !isTaking) || (isUnknown && may === "none")) return "nothing";
  // The clock, so that a device that has not read the last state does not go back.
  const version = Math.max((known?.version ?? 0) + 1, context.credential.now());
  const localId = newId();
  // What was taken away before counts no more when something is given.
  if (may === "none") await beginRevocation(context.store, session.id, user, { localId, version });
  else await endRevocation(context.store, session.id, user);
  await grant(context, live, user, may, version, localId);
  const stop = new AbortController();
  const late = sleep(RECEIPT_WITHIN, stop.signal).then(
    () => stop.abort(),
    () => undefined,
  );
  try {
    for await (const _changed of live.follow({ signal: stop.signal })) {
      const receipt = receiptOf(live.taken(localId));
      if (receipt === "confirmed") await endRevocation(context.store, session.id, user);
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
    const [localId, version] = [newId(), Math.max(known.version + 1, context.credential.now())];
    await beginRevocation(context.store, id, known.user, { localId, version });
    await grant(context, live, known.user, "none", version, localId);
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
  { localId, version: noted }: Revocation,
): Promise<void> {
  const end = (): Promise<void> => endRevocation(context.store, id, user);
  const session = await readSession(context, id).catch((error: unknown) => {
    if (isNotFound(error)) return undefined;
    throw error;
  });
  // No agent works there any more.
  if (!session?.hosted || isWithoutItsHost(await context.own(), session)) return end();
  const live = await LiveSession.open(context, id, { isForPerson: false });
  const taken = live.taken(localId);
  const known = live.view.state?.access.find((grant) => grant.user === user);
  const isNewer = known !== undefined && known.version >= noted;
  if (taken?.is === "done" || (isNewer && known.may === "none")) return end();
  const isOutrun = isNewer || (taken?.is === "rejected" && taken.code === "superseded");
  // Another device has given them something later. A share to read gives nothing here.
  const mayCommand = (share: Share): boolean => share.userId === user && share.accessLevel !== "view";
  if (isOutrun && (await sharesOf(context, id)).some(mayCommand)) return end();
  // The machine reads it when it is back.
  if (taken && taken.is !== "rejected") return;
  // A refused command stays refused. One that may have arrived is not sent under a new id.
  const next = taken ? newId() : localId;
  // What was refused needs another version, and so does one that a clock had made while it was ahead.
  const isNew = isOutrun || taken !== undefined || noted > context.credential.now();
  const version = isNew ? Math.max((known?.version ?? 0) + 1, context.credential.now()) : noted;
  await beginRevocation(context.store, id, user, { localId: next, version });
  await grant(context, live, user, "none", version, next);
}
