/** People who may open a session, and its public link. */
import type { MachineReceipt } from "@ensemble/client/account";
import { useEffect } from "react";
import { serverNow } from "../base/server-clock.ts";
import { Store, useStore } from "../base/store.ts";
import { mine } from "./account.ts";
import { forget, keep, LINKS, recall } from "./kept.ts";

/** What a person may do with a live session. */
export type Level = "view" | "prompt" | "approve";

export interface ShareRow {
  userId: string;
  level: "view" | "edit" | "admin";
  fingerprint: string | undefined;
  name: string | undefined;
}

export type { MachineReceipt };

export async function sharesOf(session: string): Promise<ShareRow[]> {
  const { sessions, people } = mine();
  return Promise.all(
    (await sessions.shares(session)).map(async ({ userId, accessLevel }) => ({
      userId,
      level: accessLevel,
      fingerprint: await people.fingerprint(userId).catch(() => undefined),
      name: await nameOf(userId).catch(() => undefined),
    })),
  );
}

/** What this account calls them, or the quoted name that the server gives. */
async function nameOf(user: string): Promise<string | undefined> {
  const { people } = mine();
  const [called, name] = await Promise.all([people.called(user), people.name(user)]);
  return called ?? (name && `“${name}”`);
}

/** The fingerprint that both compare before anything is sealed to the other. */
export async function whoIs(user: string): Promise<{ fingerprint: string; name: string | undefined }> {
  const { people } = mine();
  return { fingerprint: await people.fingerprint(user), name: await people.name(user) };
}

export function share(session: string, user: string, level: Level): Promise<MachineReceipt> {
  return mine().sessions.share(session, user, level === "view" ? "view" : "edit", { approve: level === "approve" });
}

/** The session gets a new key, which its public link does not have. */
export async function unshare(session: string, user: string): Promise<MachineReceipt> {
  const receipt = await mine().sessions.unshare(session, user);
  await readLink(session).catch(() => undefined);
  return receipt;
}

/** A public link. The server does not know its address. */
export interface LinkRow {
  /** Known to the browser that made the link. */
  address: string | undefined;
  expiresAt: string | undefined;
  maxUses: number | undefined;
  uses: number;
  /** The session has got a new key since: the link does not open what came after that. */
  isOld: boolean;
}

/** By session; null: there is none. */
export const links = new Store<ReadonlyMap<string, LinkRow | null>>(new Map());

/**
 * The address of a link has the key in it, which no server and no other device gets. The browser that made the link keeps it as long as
 * the link stands, sealed like all that it keeps (`kept.ts`). It opens no more than the keys of the session that are here anyway.
 */
interface KeptAddress {
  address: string;
  /** When the link was made: one that was made elsewhere since has another address. */
  createdAt: string;
}

const addressOf = (session: string): string => `${LINKS}${session}`;

export const keepAddress = (session: string, kept: KeptAddress): Promise<void> => keep("typed", addressOf(session), kept);

/** The address of the link that was made at this time, if this browser made it. Any other that was kept is forgotten. */
export async function knownAddress(session: string, createdAt: string | undefined): Promise<string | undefined> {
  const kept = (await recall<KeptAddress>(addressOf(session)))?.value;
  if (!kept || kept.createdAt === createdAt) return kept?.address;
  await forget(addressOf(session));
  return undefined;
}

async function readLink(id: string): Promise<void> {
  const { sessions } = mine();
  const [link, { keyEpoch }] = await Promise.all([sessions.link(id), sessions.read(id)]);
  const address = await knownAddress(id, link?.createdAt);
  const row = link
    ? {
        address,
        expiresAt: link.expiresAt ?? undefined,
        maxUses: link.maxUses ?? undefined,
        uses: link.uses,
        isOld: (link.keyEpoch ?? keyEpoch) < keyEpoch,
      }
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

/** A new public link, which ends the one before. Gives its address. */
export async function newLink(session: string, hours: number | undefined, uses: number | undefined): Promise<string> {
  const { address, link } = await mine().sessions.createLink(session, {
    ...(hours !== undefined && { expiresAt: new Date(serverNow() + hours * 3_600_000).toISOString() }),
    ...(uses !== undefined && { maxUses: uses }),
  });
  await keepAddress(session, { address, createdAt: link.createdAt });
  await readLink(session).catch(() => undefined);
  return address;
}

export async function endLink(session: string): Promise<void> {
  await mine().sessions.deleteLink(session);
  await knownAddress(session, undefined);
  links.update((before) => new Map(before).set(session, null));
}
