/** What the account's notices say. Loaded when there is one. */
import type { Notice } from "@ensemble/client/account";
import { say } from "../base/toast.tsx";

export function sayNotice(notice: Notice): void {
  const text = textOfNotice(notice);
  if (text) say(text);
}

/** Undefined: a call answers it, or the page shows it elsewhere. */
function textOfNotice(notice: Notice): string | undefined {
  // A recovery, or what was left unfinished, has removed a device.
  if (notice.is === "rights_not_searched") return `A device was removed. ${notSearched(notice.sessions)}`;
  if (notice.is === "session_missing") return isMissing(notice.session);
  if (notice.is === "left_out") return isLeftOut(notice.session, notice.user);
  return notice.is === "keys_replaced" ? hasNewKeys(notice.session) : undefined;
}

/** The server calls a session missing of which something is not finished. */
function isMissing(session: string): string {
  return `The server says that session ${session} is not there. People's keys or rights there have not been changed yet. This is finished when the session is back. If it was deleted, run \`ensemble session delete ${session}\`.`;
}

/** The server names a user whom no good signature does. */
function isLeftOut(ref: string, user: string): string {
  return `User ${user} does not get the new key of session ${ref}. If they are to have it, share it with them again.`;
}

/** The server was restored from a backup, and had lost keys of an own session. */
function hasNewKeys(ref: string): string {
  return `The server had lost the newest keys of session ${ref} (restored from a backup?), so it has new ones. What was written under the lost ones does not open.`;
}

/** What a removal leaves open: sessions that were not searched for rights that the removed device has given. */
export function notSearched(sessions: number): string {
  const where = sessions === 1 ? "a session" : `${sessions.toLocaleString()} sessions`;
  return `What it has let people do in ${where} was not checked. Machines that know of its removal allow none of that.`;
}
