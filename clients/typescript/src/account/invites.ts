// Joining a session by an invitation: the guest's side.

import { Client, type ClientOptions } from "../client.js";
import { Distrust, isNotFound, isProblem, Refused } from "../errors.js";
import { InviteCode, type InviteAnswer } from "../protocol/seal/invite.js";
import type { components } from "../openapi.js";
import type { Context } from "./context.js";
import { newestList, rememberList } from "./lists.js";
import { readUser } from "./pins.js";
import { sleep } from "../retry.js";

export { InviteCode, type InviteAnswer };

/** An invitation that has ended, or that another person has used. */
export class InviteOver extends Refused {}

class OtherAccount extends Distrust {
  constructor() {
    super("The server does not show the account that was in the answer. Nothing was kept. Do not trust this server.");
  }
}

/** How long one call waits, in milliseconds. */
const ONE_WAIT = 25_000;
const BETWEEN_LOOKS = 1_000;

/** How an invitation stands. Needs no account. */
export async function lookAtInvite(code: InviteCode, options: Omit<ClientOptions, "base" | "credential">): Promise<Invite> {
  return look(new Client({ ...options, base: code.base }), code, 0);
}

type Invite = components["schemas"]["Invite"];

/** Claims the invitation for this account under a name of at most 64 bytes. The same account may do so again. */
export async function claimInvite(context: Context, code: InviteCode, name: string): Promise<void> {
  const { list } = await context.own(0);
  const guest = { userId: context.userId, account: list.body.account, version: list.version, digest: list.digest };
  const body = await code.claim(guest, context.keys.signer, name);
  try {
    await context.client.call("POST", "/v1/invites/{id}/claim", { path: { id: code.id }, body });
  } catch (error) {
    if (isProblem(error, "CONFLICT")) throw new InviteOver(error.message);
    throw error;
  }
}

/** Waits until the claim is answered. The owner whom the answer names is the one whom this account trusts from now on. */
export async function inviteAnswered(context: Context, code: InviteCode, signal?: AbortSignal): Promise<InviteAnswer> {
  for (;;) {
    const { state, answer } = await look(context.client, code, ONE_WAIT, signal);
    // A server that ends answers at once.
    if (state === "open" || state === "claimed") await sleep(BETWEEN_LOOKS, signal);
    if (state === "answered" && answer) return checked(context, await code.openAnswer(answer));
    if (state === "ended") throw new InviteOver("The person who has invited you has ended the invitation.");
    if (state === "expired") throw new InviteOver("The invitation was not answered in time. Ask for a new one.");
  }
}

async function checked(context: Context, answer: InviteAnswer): Promise<InviteAnswer> {
  const { owner, account, version, digest } = answer;
  const shown = (await readUser(context.client, owner)).publicKey;
  const list = await newestList(context.client, owner, { account, version, digest });
  // It is compared before it is remembered.
  const isGood = shown === account && list !== undefined && list.version >= version;
  if (!isGood || (await context.pins.accountKey(owner)) !== account) throw new OtherAccount();
  await rememberList(context.store, owner, list);
  // The server could give the session of someone else under this id.
  const { ownerId } = await context.client.call("GET", "/v1/sessions/{id}", { path: { id: answer.session } });
  if (ownerId !== owner) throw new OtherAccount();
  return answer;
}

async function look(client: Client, code: InviteCode, waitMs: number, signal?: AbortSignal): Promise<Invite> {
  const params = { path: { id: code.id }, query: { waitMs } };
  try {
    return await client.call("GET", "/v1/invites/{id}", { ...params, ...(signal && { signal }) });
  } catch (error) {
    if (isNotFound(error)) throw new InviteOver("The server does not know this invitation: it is wrong, or has ended.");
    throw error;
  }
}
