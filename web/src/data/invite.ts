/** Joining a session by an invitation. */
import { claimInvite, InviteCode, inviteAnswered, InviteOver, lookAtInvite } from "@ensemble/client/invites";
import { server } from "../base/server.ts";
import { create, isOpened, mine } from "./account.ts";
import { onCall } from "./connection.ts";
import { keepTrying, mayHeal } from "./keep-trying.ts";
import { forgetNamed, keep, recall } from "./kept.ts";

/** The invitation that was claimed here and not answered yet. */
const CLAIMED = "invite";
/** The longest name of a claim, in bytes. */
const LONGEST_NAME = 64;

/** The address of the invitation that waits for its answer, also after a reload. */
export async function keptInvite(): Promise<string | undefined> {
  return (await recall<string>(CLAIMED))?.value;
}

/** Waits for it no more. Its owner may answer it all the same. */
export const forgetInvite = (): Promise<void> => forgetNamed(CLAIMED);

/** Makes an account unless there is one, claims the invitation and waits for the answer. Returns the session's id; undefined for an
 * invitation that only makes the first account of a server, and when the signal was aborted. */
export async function joinBy(
  address: string,
  { person, device }: { person: string; device: string },
  onClaimed: () => void,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    return await joined(address, { person, device }, onClaimed, signal);
  } catch (error) {
    if (error instanceof InviteOver && (await keptInvite()) === address) await forgetInvite();
    throw error;
  }
}

async function joined(
  address: string,
  { person, device }: { person: string; device: string },
  onClaimed: () => void,
  signal: AbortSignal,
): Promise<string | undefined> {
  const code = InviteCode.fromAddress(address);
  if (new URL(code.base).origin !== new URL(server()).origin) {
    throw new InviteOver(`This invitation is for another server. Open its address: ${code.base}`);
  }
  const isNew = !isOpened();
  const { first, state } = await lookAtInvite(code, { onCall });
  if (isNew && state !== "open") throw new InviteOver("Someone else has used this invitation already. Ask for a new one.");
  if (isNew) await create(device, person, await code.admission());
  if (first) return undefined;
  if ((await keptInvite()) !== address) {
    await claimInvite(mine(), code, short(person));
    await keep("typed", CLAIMED, address);
  }
  onClaimed();
  const over = new AbortController();
  signal.addEventListener("abort", () => over.abort());
  let session: string | undefined;
  let failure: unknown;
  const wait = async (): Promise<void> => {
    ({ session } = await inviteAnswered(mine(), code, over.signal));
  };
  const failed = (error: unknown): void => {
    if (mayHeal(error)) return;
    failure = error;
    over.abort();
  };
  await keepTrying(wait, failed, over.signal);
  if (failure !== undefined) throw failure;
  if (session !== undefined) await forgetInvite();
  return session;
}

/** A name as a claim may have it. */
function short(name: string): string {
  const characters = [...name];
  while (new TextEncoder().encode(characters.join("")).length > LONGEST_NAME) characters.pop();
  return characters.join("");
}
