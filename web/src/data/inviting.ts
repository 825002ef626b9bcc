/** Invitations of this account: every open page answers those who claim one. */
import {
  endInvite,
  endInvites,
  invite,
  invitesInto,
  isLoopback,
  letIn,
  type Listed,
  waiting,
  type Waiting,
} from "@ensemble/client/inviting";
import { Store } from "../base/store.ts";
import { say } from "../base/toast.tsx";
import { oneLine } from "../text/visible.ts";
import { mine } from "./account.ts";
import { textOf } from "./failure.ts";
import { type Level, unshare } from "./shares.ts";

export { isLoopback, type Listed, type Waiting };

/** People who want to do more than read: a link that was passed on must not command a machine, so the person is asked. */
export const guests = new Store<readonly Waiting[]>([]);

const asks = ({ level, may }: Waiting): boolean => level !== "view" || may !== undefined;

/** Lets in who may only read, and says who wants more. Resolves to whether another device has begun to answer someone. */
export async function answerInvites(): Promise<boolean> {
  const found = await waiting(mine(), (error) => say(textOf(error)));
  guests.set(found.filter(asks));
  const failed = (guest: Waiting, error: unknown) => say(`${oneLine(guest.name, 60)} could not be let in. ${textOf(error)}`);
  let isOthers = false;
  for (const guest of found.filter((one) => !asks(one))) {
    const isAnswered = await joins(guest, false).catch((error: unknown) => failed(guest, error));
    isOthers ||= isAnswered === false;
  }
  return isOthers;
}

/** False: another device has begun to answer. */
async function joins(guest: Waiting, isAsked: boolean): Promise<boolean> {
  const receipt = await letIn(mine(), guest, isAsked);
  if (receipt === undefined) {
    if (isAsked) say("Another of your devices has answered.");
    return false;
  }
  const name = oneLine(guest.name, 60);
  const remove = (): void =>
    void unshare(guest.session, guest.user).then(
      () => say(`${name} was removed.`),
      (error: unknown) => say(`${name} could not be removed. ${textOf(error)}`),
    );
  say(`${name} has joined.`, remove, "Remove");
  if (receipt !== "confirmed" && receipt !== "nothing") say("The machine does not know yet what they may do.");
  return true;
}

export async function allow(guest: Waiting): Promise<void> {
  await joins(guest, true);
  forgetGuest(guest);
}

export async function refuse(guest: Waiting): Promise<void> {
  await endInvite(mine(), guest.id);
  forgetGuest(guest);
}

const forgetGuest = ({ id }: Waiting): void => guests.update((all) => all.filter((one) => one.id !== id));

export const inviteInto = (session: string, level: Level, hours: number): Promise<{ address: string }> =>
  invite(mine(), { session, level: level === "view" ? "view" : "edit", ...(level !== "view" && { may: level }) }, hours);

export const invitesOf = (session: string): Promise<Listed[]> => invitesInto(mine(), session);

export const end = (id: string): Promise<void> => endInvite(mine(), id);

export const endInvitesInto = (session: string): Promise<void> => endInvites(mine(), session);
