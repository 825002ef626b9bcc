// What a guest may do with the agent of a live session. A share lets a person read; the machine obeys only what the owner has signed.

import { sleep } from "../retry.js";
import { accountDigest } from "../seal/device-list.js";
import type { May } from "../transcript/body.js";
import type { Taken } from "../transcript/item.js";
import type { Account } from "./account.js";
import { LiveSession } from "./live.js";
import type { Session } from "./vault.js";

/** How long the machine may take to answer, in milliseconds. */
const RECEIPT_WITHIN = 15_000;

/** What became of it. `told`: the machine does so; `nothing`: there was nothing to say; `away`: the machine has not confirmed it, and
 * does what it last knew until it is back. An object: it has refused, and does what it last knew. */
export type Told = "told" | "away" | "nothing" | Extract<Taken, { is: "rejected" }>;

/** Tells the session's machine what this person may do. `isFirst`: they have had no share of it. */
export async function tellMachine(
  account: Account,
  session: Session,
  user: string,
  may: May,
  isFirst: boolean,
): Promise<Told> {
  if (!session.hosted || session.accessLevel !== "owner") return "nothing";
  const live = await LiveSession.open(account, session.id);
  const { state } = live.view;
  const known = state?.access.find((grant) => grant.user === user);
  const isUnknown = state !== undefined && known === undefined && isFirst;
  // A right that was given may not be in the last state, so taking one away is always said.
  if ((known?.may === may && may !== "none") || (isUnknown && may === "none")) return "nothing";
  // The clock, so that a device that has not read the last state does not go back.
  const version = Math.max((known?.version ?? 0) + 1, account.credential.now());
  const list = await account.people.list(user);
  const value = { user, account: await accountDigest(list.body.account), may, version };
  const { localId } = await live.control({ action: "access", value });
  const stop = new AbortController();
  const late = sleep(RECEIPT_WITHIN, stop.signal).then(
    () => stop.abort(),
    () => undefined,
  );
  try {
    for await (const _changed of live.follow({ signal: stop.signal })) {
      const told = toldBy(live.taken(localId));
      if (told) return told;
    }
    return "away";
  } finally {
    stop.abort();
    await late;
  }
}

/** What a receipt says. Undefined: the machine has not decided yet. */
export function toldBy(taken: Taken | undefined): Told | undefined {
  if (taken?.is === "rejected") return taken;
  return taken?.is === "done" ? "told" : undefined;
}
