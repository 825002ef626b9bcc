// Which metadata of a session counts. People choose sessions by it, while the server and every guest could show something else. A title
// counts under the signature of somebody who may give one, the directory as the session's machine has signed it.

import { utf8 } from "../bytes.js";
import { Refused, SealError } from "../errors.js";
import { makesKeys, type List } from "../seal/device-list.js";
import { asObject, type KeyRing } from "../seal/ring.js";
import { openMetadata, partOf, sealMetadata, type OfMachine, type SignedMetadata } from "../seal/said.js";
import { SharedRing } from "../seal/share.js";
import type { Account } from "./account.js";
import { everHad } from "./lists.js";
import { hostOf, type Session } from "./vault.js";
import type { components } from "../openapi.js";

/** What a session says of itself. Members that are not known here are kept. */
export type Metadata = { title?: string; path?: string; host?: string } & Record<string, unknown>;

/** What counts of a session's metadata. */
export interface Titled {
  /** What somebody has signed who may, in the newest version that this device has seen. Of a hosted session without what the machine says. */
  card?: Metadata | undefined;
  /** What the machine of the session has signed. A session of a directory is found in nothing else. */
  ofMachine?: Metadata | undefined;
  /** The same, for the next version. */
  signed?: OfMachine | undefined;
}

/** More versions than this are not written to get above the one that was seen. */
const MOST_BEHIND = 1_000;
/** Keys of which it is remembered whether a list has or had them. */
const MOST_KEYS = 2_000;

const record = (session: string): string => `title ${session}`;
const ever = new WeakMap<Account, Map<string, Promise<boolean>>>();

/** What counts of the metadata of a session, with its keys. Rejects when it does not open. */
export async function titled(account: Account, session: Session, ring: KeyRing): Promise<Titled> {
  let signed: SignedMetadata;
  try {
    signed = await openMetadata(ring, session.id, session.metadataVersion, session.metadata);
  } catch (error) {
    if (error instanceof SealError && error.kind === "signature") return {};
    throw error;
  }
  const known = await account.store.get<number>(record(session.id));
  const list = await ownersList(account, session, signed.key);
  const counts = (known ?? 0) <= session.metadataVersion && (await mayTitle(account, session, list, signed));
  if (counts) await noteTitle(account, session.id, session.metadataVersion);
  const host = hostOf(session);
  const machine = host === undefined ? undefined : list.machine(host)?.key;
  const part = machine === undefined ? undefined : await partOf(signed, session.id, machine);
  return { card: counts ? cardOf(signed.body, session) : undefined, ofMachine: part && read(part.body), signed: part };
}

/** The same, and nothing when it does not open. */
export async function titledOrNot(account: Account, session: Session, ring: KeyRing): Promise<Titled> {
  try {
    return await titled(account, session, ring);
  } catch (error) {
    if (error instanceof SealError) return {};
    throw error;
  }
}

/** Title, directory, agent and host, as far as each counts. */
export function shownOf({ card, ofMachine }: Titled): Metadata {
  const { title: _theirs, ...where } = ofMachine ?? {};
  return { ...card, ...where };
}

/** Signs metadata for the version that it gets. What the machine has signed goes on in it. */
export async function sealTitle(account: Account, session: Session, ring: KeyRing, version: number, card: Metadata, before: Titled): Promise<string> {
  const { keys, userId } = account;
  const isOwner = session.accessLevel === "owner";
  const { list } = await account.own();
  const admin = isOwner ? undefined : await SharedRing.fromText(session.encryptedKey ?? "").asAdmin(userId, list.body.account);
  return sealMetadata(ring, session.id, version, { body: JSON.stringify(card), user: userId, admin, ofMachine: before.signed }, keys.signer);
}

/** The metadata for a new key, under which what was signed for the one before counts no more. Undefined: none counted. */
export async function titleForNewKey(account: Account, session: Session, old: KeyRing, ring: KeyRing): Promise<string | undefined> {
  const before = await titledOrNot(account, session, old);
  if (!before.card && !before.ofMachine) return undefined;
  return sealTitle(account, session, ring, session.metadataVersion + 1, before.card ?? {}, before);
}

/** Replaces the metadata. A server that was restored gets it once for each version that it lacks, so that no device takes it for an old
 * one. */
export async function writeTitle(account: Account, session: Session, ring: KeyRing, card: Metadata, before: Titled): Promise<Session> {
  const { client, store } = account;
  const shown = session.metadataVersion;
  const newest = Math.max(shown, (await store.get<number>(record(session.id))) ?? 0);
  if (newest - shown > MOST_BEHIND) throw new Refused("The server has a much older state of this session than this device has seen.");
  for (let version = shown; ; version++) {
    const metadata = await sealTitle(account, session, ring, version + 1, card, before);
    const body: components["schemas"]["UpdateSession"] = { metadata, expectedMetadataVersion: version };
    const changed = await client.data(client.http.PATCH("/v1/sessions/{id}", { params: { path: { id: session.id } }, body }));
    if (version < newest) continue;
    await noteTitle(account, session.id, version + 1);
    return changed;
  }
}

/** Notes a version that was seen or written. One below is an old title that is shown again. */
export async function noteTitle(account: Account, session: string, version: number): Promise<void> {
  if (version <= ((await account.store.get<number>(record(session))) ?? 1)) return;
  await account.store.update<number>(record(session), (known) => Math.max(version, known ?? 1));
}

const read = (body: string): Metadata => asObject(utf8(body)) as Metadata;

/** Where the agent of a hosted session works is for its machine to say. */
function cardOf(body: string, session: Session): Metadata {
  const card = read(body);
  if (!session.hosted) return card;
  const { path: _path, host: _host, agent: _agent, ...rest } = card;
  return rest;
}

/** The owner's device list. One that has the key already is good enough: a page of sessions may have many owners. */
async function ownersList(account: Account, session: Session, key: string): Promise<List> {
  const { list } = await account.own();
  if (session.ownerId !== account.userId) return account.people.list(session.ownerId);
  // A device or a machine may have been added a moment ago.
  return list.device(key) ? list : (await account.own(1_000)).list;
}

/** Whether the signer is or was a device of the owner, the session's machine, or an admin by grant. */
async function mayTitle(account: Account, session: Session, list: List, signed: SignedMetadata): Promise<boolean> {
  const { client, people } = account;
  const host = hostOf(session);
  const had = (key: string, of?: string): Promise<boolean> => {
    const counts = makesKeys(of);
    const entry = list.device(key);
    if (entry && counts(entry)) return Promise.resolve(true);
    const name = `${list.digest} ${key} ${of ?? ""}`;
    return remembered(account, name, () => everHad(client, session.ownerId, list.body.account, key, counts));
  };
  if (signed.user === session.ownerId) return had(signed.key, host);
  const { admin } = signed;
  // With the next key the owner grants it directly. An admin of an earlier epoch may have lost that.
  if (admin?.user !== signed.user || admin.epoch !== signed.epoch) return false;
  const granted = await admin.grantedBy(session.id);
  if (granted === undefined || !(await had(granted))) return false;
  const theirs = await people.list(admin.user);
  if (theirs.body.account !== admin.account) return false;
  return theirs.commands(signed.key) || everHad(client, admin.user, admin.account, signed.key);
}

/** What was found out about a key of a list, once. */
function remembered(account: Account, name: string, find: () => Promise<boolean>): Promise<boolean> {
  const all = ever.get(account) ?? new Map<string, Promise<boolean>>();
  ever.set(account, all);
  let found = all.get(name);
  if (!found) {
    found = find();
    found.catch(() => all.delete(name));
    all.set(name, found);
    const oldest = all.size > MOST_KEYS ? all.keys().next().value : undefined;
    if (oldest !== undefined) all.delete(oldest);
  }
  return found;
}
