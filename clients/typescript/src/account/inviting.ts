// Inviting people into a session: the owner's side, which every device of the account can take.

import { newId } from "../client.js";
import { Distrust, isNotFound, isProblem, Refused } from "../errors.js";
import { InviteCode, type InviteClaim } from "../protocol/seal/invite.js";
import { sleep } from "../retry.js";
import type { components } from "../openapi.js";
import type { Context } from "./context.js";
import { newestList, rememberList } from "./lists.js";
import { shownName } from "./people.js";
import type { MachineReceipt } from "./live/access.js";
import type { Shared } from "./pins.js";
import { readUser } from "./pins.js";
import type { Sessions } from "./sessions/index.js";
import { hostOf } from "./sessions/known.js";

/** What an invitation lets a person do. */
export interface Invites {
  session: string;
  level: "view" | "edit";
  may?: "prompt" | "approve";
}

/** An invitation as the devices of the account share it. */
interface Kept extends Invites {
  /** Absent when it was answered. */
  secret?: string;
  /** The address of the server in it. */
  base: string;
  expiresAt: string;
  /** The device that answers now. */
  answering?: { by: string; until: string };
  /** Who has joined by it. */
  user?: string;
}

interface Person {
  account: string;
  name: string;
}

/** Someone who has claimed an invitation with its secret, and waits. */
export interface Waiting extends Invites {
  id: string;
  user: string;
  /** What the account calls them from then on. */
  name: string;
  account: string;
  code: InviteCode;
}

/** How an invitation into a session stands. */
export interface Listed extends Invites {
  id: string;
  state: components["schemas"]["InviteState"];
  expiresAt: string;
  base: string;
  user: string | undefined;
  /** What the one who has claimed it goes by. */
  name: string | undefined;
}

/** The most invitations that are shared. */
const MOST = 20;
const DAY = 86_400_000;
/** A device that has begun to answer is done by then, or gone. */
const TURN = 60_000;
const BETWEEN_LOOKS = 1_000;
/** How long a person waits for another device that has begun to answer. */
const WAITS = 90_000;

const invitesOf = (state: Shared): Record<string, Kept> => ({ ...(state["invites"] as Record<string, Kept> | undefined) });
/** The server's clock could stand still. */
const laterNow = ({ credential }: Context): number => credential.clocks()[1];
/** Whether no claim is answered any more, also where the server says that it is good. */
const isPast = ({ expiresAt }: Kept, now: number): boolean => !(Date.parse(expiresAt) + DAY > now);
const peopleOf = (state: Shared): Record<string, Person> => ({ ...(state["people"] as Record<string, Person> | undefined) });

/** Whether only this computer reaches the address. */
export const isLoopback = (address: string): boolean => /^(localhost|127(\.\d+){3}|\[::1\])$/.test(new URL(address).hostname);

/** The address at which others reach the server. Without one it is the address that this program uses. */
async function baseForOthers({ client }: Context): Promise<string> {
  const here = new URL(client.base).href.replace(/\/+$/, "");
  if (!isLoopback(here)) return here;
  const { publicOrigins } = await client.call("POST", "/v1/auth/challenge");
  const others = (publicOrigins ?? []).filter((one) => URL.canParse(one) && /^https?:/.test(one) && !isLoopback(one));
  const best = others.find((one) => one.startsWith("https:")) ?? others[0];
  return best === undefined ? here : new URL(best).origin;
}

/** Makes an invitation. */
export async function invite(
  context: Context,
  invites: Invites,
  hours: number,
): Promise<{ id: string; address: string; expiresAt: string }> {
  const { client, credential } = context;
  const base = await baseForOthers(context);
  const { secret, admission } = await InviteCode.newSecret();
  const wanted = new Date(credential.now() + hours * 3_600_000).toISOString();
  const made = await client.call("POST", "/v1/invites", { body: { admission, expiresAt: wanted } });
  const { id } = made;
  const expiresAt = Date.parse(made.expiresAt) < Date.parse(wanted) ? made.expiresAt : wanted;
  try {
    await context.pins.share((state) => added(state, id, { ...invites, secret, base, expiresAt }, credential.now()));
  } catch (error) {
    await client.call("DELETE", "/v1/invites/{id}", { path: { id } }).catch(() => undefined);
    throw error;
  }
  return { id, address: InviteCode.of(base, id, secret).address, expiresAt };
}

function added(state: Shared, id: string, kept: Kept, now: number): Shared {
  const known = invitesOf(state);
  const isOver = (one: Kept): boolean => one.secret === undefined || isPast(one, now);
  // What is over makes room, the oldest first.
  const over = Object.entries(known).filter(([, one]) => isOver(one));
  over.sort(([, one], [, other]) => (one.expiresAt < other.expiresAt ? -1 : 1));
  const beyond = Math.max(0, Object.keys(known).length + 1 - MOST);
  if (over.length < beyond) throw new Refused("20 invitations are open. End one of them.");
  for (const [one] of over.slice(0, beyond)) delete known[one];
  return { ...state, invites: { ...known, [id]: kept } };
}

/** Who waits for an answer. A claim that was not made with its secret ends the invitation, and `onForged` gets the reason. */
export async function waiting(context: Context, onForged: (error: Error) => void): Promise<Waiting[]> {
  const { client } = context;
  const { state: shared } = await context.pins.shared();
  const open = Object.entries(invitesOf(shared)).filter(([, { secret }]) => secret !== undefined);
  if (open.length === 0) return [];
  const { invites } = await client.call("GET", "/v1/invites");
  const found: Waiting[] = [];
  for (const [id, kept] of open) {
    const { secret = "", base, session, level, may } = kept;
    const { state, claim } = invites.find((one) => one.id === id) ?? {};
    if (state === "answered") await noteAnswered(context, id, claim?.userId);
    // What the server has forgotten is over.
    const isOver = state === undefined || state === "ended" || state === "expired" || isPast(kept, laterNow(context));
    if (isOver && state !== "answered") await forget(context, id);
    if (isOver || state !== "claimed" || !claim) continue;
    const code = InviteCode.of(base, id, secret);
    try {
      await check(context, code, claim);
    } catch (error) {
      if (!(error instanceof Distrust)) throw error;
      await endInvite(context, id);
      onForged(error);
      continue;
    }
    const { userId: user, account } = claim;
    const name = nameFor(peopleOf(shared), user, claim.name);
    found.push({ id, session, level, ...(may && { may }), user, name, account, code });
  }
  return found;
}

async function check(context: Context, code: InviteCode, claim: InviteClaim): Promise<void> {
  const { userId, account, version, digest, key } = claim;
  const forged = (why: string): Distrust => new Distrust(`An invitation was ended: ${why} Nothing was shared.`);
  if (!(await code.isGood(claim))) throw forged("someone claimed it without its secret.");
  const shown = (await readUser(context.client, userId)).publicKey;
  const list = await newestList(context.client, userId, { account, version, digest });
  const isGood = shown === account && list !== undefined && list.version >= version && list.commands(key);
  if (!isGood || (await context.pins.accountKey(userId)) !== account) {
    throw forged("the server does not show the account that has claimed it.");
  }
  await rememberList(context.store, userId, list);
}

type Turn = "mine" | "other" | "over";

/** Whether this program answers now. The guest has this name from then on. */
async function take(context: Context, guest: Waiting, by: string): Promise<Turn> {
  const { client, credential, pins } = context;
  let turn = "over" as Turn;
  await pins.share((state) => {
    const invites = invitesOf(state);
    const [kept, now] = [invites[guest.id], credential.now()];
    turn = "over";
    if (kept?.secret === undefined || isPast(kept, laterNow(context))) return undefined;
    const { answering } = kept;
    turn = answering && answering.by !== by && Date.parse(answering.until) > now ? "other" : "mine";
    if (turn === "other") return undefined;
    const until = new Date(now + TURN).toISOString();
    invites[guest.id] = { ...kept, answering: { by, until } };
    return { ...state, invites, people: named(peopleOf(state), guest) };
  });
  if (turn !== "mine") return turn;
  // The one before may have answered and not noted it.
  const { state } = await client.call("GET", "/v1/invites/{id}", { path: { id: guest.id } });
  return state === "claimed" ? "mine" : "over";
}

async function isAnswered({ client }: Context, id: string): Promise<boolean> {
  return (await client.call("GET", "/v1/invites/{id}", { path: { id } })).state === "answered";
}

/** What the account calls a person, or would: no other person has this name. */
function nameFor(people: Record<string, Person>, user: string, wanted: string): string {
  if (people[user]) return shownName(people[user].name);
  const taken = new Set(Object.values(people).map((one) => shownName(one.name).toLowerCase()));
  const name = shownName(wanted);
  let free = name;
  for (let number = 2; taken.has(free.toLowerCase()); number++) free = `${name} (${number})`;
  return free;
}

/** One who has a name keeps it. */
function named(people: Record<string, Person>, { user, account, name }: Waiting): Record<string, Person> {
  return people[user] ? people : { ...people, [user]: { account, name: nameFor(people, user, name) } };
}

/** An account with its sessions. */
type Owner = Context & { readonly sessions: Sessions };

/** Shares the session with the guest and answers. Undefined: another device has, or without `isAsked` has begun to, or it is over. */
export async function letIn(account: Owner, guest: Waiting, isAsked: boolean): Promise<MachineReceipt | undefined> {
  const { client } = account;
  const [by, deadline] = [newId(), performance.now() + WAITS];
  for (;;) {
    const turn = await take(account, guest, by);
    if (turn === "mine") break;
    if (turn === "over" && isAsked && !(await isAnswered(account, guest.id))) {
      throw new Refused("The invitation has ended. Nothing was shared.");
    }
    if (turn === "over" || !isAsked) return undefined;
    if (performance.now() > deadline) throw new Refused("Another of your devices has begun to answer, and does not end.");
    await sleep(BETWEEN_LOOKS);
  }
  let session;
  try {
    session = await account.sessions.read(guest.session);
  } catch (error) {
    if (isNotFound(error)) await endInvite(account, guest.id);
    throw error;
  }
  const receipt = await account.sessions.share(guest.session, guest.user, guest.level, { approve: guest.may === "approve" });
  const { list } = await account.own();
  const host = hostOf(session);
  const machine = host === undefined ? undefined : list.machine(host)?.key;
  const { displayName } = await client.call("GET", "/v1/account");
  const { level, may } = guest;
  const answer = await guest.code.sealAnswer({
    session: session.id,
    owner: account.userId,
    account: list.body.account,
    version: list.version,
    digest: list.digest,
    name: displayName ?? "",
    level,
    ...(machine !== undefined && { machine }),
    ...(may && { may }),
  });
  await client.call("POST", "/v1/invites/{id}/answer", { path: { id: guest.id }, body: { answer } });
  await noteAnswered(account, guest.id, guest.user);
  return receipt;
}

/** Ends an invitation: it can be claimed and answered no more. */
export async function endInvite(context: Context, id: string): Promise<void> {
  const { client } = context;
  await client.call("DELETE", "/v1/invites/{id}", { path: { id } }).catch((error: unknown) => {
    // It was answered, or is forgotten.
    if (!isNotFound(error) && !isProblem(error, "CONFLICT")) throw error;
  });
  await forget(context, id);
}

/** Ends the invitations into a session that no one has joined by. */
export async function endInvites(context: Context, session: string): Promise<void> {
  const kept = Object.entries(invitesOf((await context.pins.shared()).state));
  for (const [id, one] of kept) if (one.session === session && one.secret !== undefined) await endInvite(context, id);
}

/** The invitations into a session, and how they stand. */
export async function invitesInto(context: Context, session: string): Promise<Listed[]> {
  const { client } = context;
  const { state } = await context.pins.shared();
  const kept = Object.entries(invitesOf(state)).filter(([, one]) => one.session === session);
  if (kept.length === 0) return [];
  const { invites } = await client.call("GET", "/v1/invites");
  const people = peopleOf(state);
  return kept.map(([id, { level, may, expiresAt, base, user }]) => {
    const shown = invites.find((one) => one.id === id);
    const given = (user !== undefined && people[user]?.name) || shown?.claim?.name;
    const name = given === undefined ? undefined : shownName(given);
    return { id, session, level, ...(may && { may }), state: shown?.state ?? "expired", expiresAt, base, user, name };
  });
}

/** What is not written down now, the next device that looks writes down. */
async function noteAnswered(context: Context, id: string, user: string | undefined): Promise<void> {
  await context.pins
    .share((state) => {
      const invites = invitesOf(state);
      const kept = invites[id];
      if (kept?.secret === undefined) return undefined;
      const { secret: _used, answering: _over, ...rest } = kept;
      return { ...state, invites: { ...invites, [id]: { ...rest, ...(user !== undefined && { user }) } } };
    })
    .catch(() => undefined);
}

async function forget(context: Context, id: string): Promise<void> {
  await context.pins
    .share((state) => {
      const { [id]: gone, ...invites } = invitesOf(state);
      return gone && { ...state, invites };
    })
    .catch(() => undefined);
}
