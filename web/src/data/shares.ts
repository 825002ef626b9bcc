/** People who may open a session, and its public link. */
import type { Told } from "@ensemble/client/account";
import { useEffect } from "react";
import { serverNow } from "../base/server-clock.ts";
import { Store, useStore } from "../base/store.ts";
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

/** The session gets a new key, which its public link does not have. */
export async function unshare(session: string, user: string): Promise<Told> {
  const told = await mine().sessions.unshare(session, user);
  await readLink(session).catch(() => undefined);
  return told;
}

/** A public link as far as the server knows it: not its address. */
export interface LinkRow {
  expiresAt: string | undefined;
  maxUses: number | undefined;
  uses: number;
  /** The session has got a new key since: the link does not open what came after that. */
  isOld: boolean;
}

/** By session; null: there is none. */
const links = new Store<ReadonlyMap<string, LinkRow | null>>(new Map());

async function readLink(id: string): Promise<void> {
  const { sessions } = mine();
  const [link, { keyEpoch }] = await Promise.all([sessions.link(id), sessions.read(id)]);
  const row = link
    ? { expiresAt: link.expiresAt ?? undefined, maxUses: link.maxUses ?? undefined, uses: link.uses, isOld: (link.keyEpoch ?? keyEpoch) < keyEpoch }
    : null;
  links.update((before) => new Map(before).set(id, row));
}

/** The public link of an own session, read when something that shows it is there. Undefined: not known. */
export function useLink(id: string, isOwn: boolean): LinkRow | null | undefined {
  const found = useStore(links).get(id);
  useEffect(() => {
    // A server of an older version does not say it. Nothing is shown then.
    if (isOwn) void readLink(id).catch(() => undefined);
  }, [id, isOwn]);
  return found?.expiresAt !== undefined && Date.parse(found.expiresAt) <= serverNow() ? null : found;
}

/** A new public link, which ends the one before. Its address is shown once: nobody else knows the key in it. */
export async function newLink(session: string, hours: number | undefined, uses: number | undefined): Promise<string> {
  const { address } = await mine().sessions.createLink(session, {
    ...(hours !== undefined && { expiresAt: new Date(serverNow() + hours * 3_600_000).toISOString() }),
    ...(uses !== undefined && { maxUses: uses }),
  });
  await readLink(session).catch(() => undefined);
  return address;
}

export async function endLink(session: string): Promise<void> {
  await mine().sessions.deleteLink(session);
  links.update((before) => new Map(before).set(session, null));
}
