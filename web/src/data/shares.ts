/** People who may open a session, and its public link. */
import type { Told } from "@ensemble/client/account";
import { serverNow } from "../base/server-clock.ts";
import { mine } from "./account.ts";

/** What a person may do with a live session. */
export type Level = "view" | "prompt" | "approve";

export interface ShareRow {
  userId: string;
  level: "view" | "edit" | "admin";
  fingerprint: string | undefined;
  name: string | undefined;
}

export type { Told };

export async function sharesOf(session: string): Promise<ShareRow[]> {
  const { sessions, people } = mine();
  return Promise.all((await sessions.shares(session)).map(async ({ userId, accessLevel }) => ({
    userId, level: accessLevel,
    fingerprint: await people.fingerprint(userId).catch(() => undefined),
    name: await people.name(userId).catch(() => undefined),
  })));
}

/** The fingerprint that both compare before anything is sealed to the other. */
export async function whoIs(user: string): Promise<{ fingerprint: string; name: string | undefined }> {
  const { people } = mine();
  return { fingerprint: await people.fingerprint(user), name: await people.name(user) };
}

export function share(session: string, user: string, level: Level): Promise<Told> {
  return mine().sessions.share(session, user, level === "view" ? "view" : "edit", { approve: level === "approve" });
}

export function unshare(session: string, user: string): Promise<Told> {
  return mine().sessions.unshare(session, user);
}

/** A new public link, which ends the one before. Its address is shown once: nobody else knows the key in it. */
export async function newLink(session: string, hours: number | undefined, uses: number | undefined): Promise<string> {
  const { address } = await mine().sessions.createLink(session, {
    ...(hours !== undefined && { expiresAt: new Date(serverNow() + hours * 3_600_000).toISOString() }),
    ...(uses !== undefined && { maxUses: uses }),
  });
  return address;
}

export function endLink(session: string): Promise<void> {
  return mine().sessions.deleteLink(session);
}
