// Which metadata of a session counts. People choose sessions by it, while the server and every guest could show something else. A title
// counts under the signature of who may give one now, or as this device has seen it count before; the directory as the session's
// machine has signed it.

import { utf8, utf8Length } from "../../protocol/bytes.js";
import { Distrust, Problem, Refused, SealError } from "../../errors.js";
import { makesKeys, type List } from "../../protocol/lists/list.js";
import { asObject, type KeyRing } from "../../protocol/seal/ring.js";
import {
  openMetadata,
  partOf,
  sealMetadata,
  uncheckedPart,
  type OfMachine,
  type SignedMetadata,
} from "../../protocol/seal/said.js";
import { SharedRing } from "../../protocol/seal/share.js";
import type { Context } from "../context.js";
import { JUST_READ, Overtaken } from "../lists.js";
import { hostOf, isOwner, type Session } from "./known.js";
import type { components } from "../../openapi.js";

/** What a session says of itself. Members that are not known here are kept. */
export type Metadata = { title?: string; path?: string; host?: string } & Record<string, unknown>;

/** What counts of a session's metadata. */
export interface Titled {
  /** The newest version that this device has seen, signed by a user who may. Of a hosted session without what the machine says. */
  card?: Metadata | undefined;
  /** What has counted here last, where the server shows nothing that counts now. */
  kept?: Metadata | undefined;
  /** What the machine of the session has signed. A session of a directory is found in nothing else. */
  ofMachine?: Metadata | undefined;
  /** The same, for the next version. Where the machine is not known: what may be the machine's. */
  signed?: OfMachine | undefined;
}

/** The newest metadata of a session that has counted here. */
interface Seen {
  /** Of the session's key. Metadata counts for one key, so a newer key is more than a newer version. */
  epoch: number;
  version: number;
  /** Its contents, if they are short. */
  body?: string | undefined;
}

/** Versions by which the next one that is noted may be above the known one: a guest and the server together could show any number. More
 * than these are not written to get above the one that was seen. */
const MOST_AHEAD = 1_000;
/** The highest version that is noted of a session whose metadata was never seen here. */
const MOST_AT_FIRST = 10_000;
/** What is kept of metadata, in bytes. Of a longer one it is the title. */
const LONGEST_KEPT = 4 << 10;
/** Characters of a title that stands for metadata that is too long. */
const SHORT_TITLE = 200;

const record = (session: string): string => `seen title ${session}`;
const isBefore = (one: Seen, other: Seen): boolean =>
  one.epoch < other.epoch || (one.epoch === other.epoch && one.version < other.version);

/** What counts of the metadata of a session, with its keys, to show it. If that cannot be checked now, there is no title now. */
export async function titled(context: Context, session: Session, ring: KeyRing, by?: List): Promise<Titled> {
  return (await judged(context, session, ring, by)).titled;
}

/** The same for who signs it again. Rejects where it cannot be found out now whether the title counts: it must not be lost because of
 * that. */
export async function titledForWriting(context: Context, session: Session, ring: KeyRing): Promise<Titled> {
  const { titled, failed } = await judged(context, session, ring);
  if (failed !== undefined) throw failed;
  return titled;
}

interface Judged {
  titled: Titled;
  /** Why it cannot be found out now whether the title counts. */
  failed?: unknown;
}

/** `by`: the owner's list by which it is judged. */
async function judged(context: Context, session: Session, ring: KeyRing, by?: List): Promise<Judged> {
  const known = await context.store.get<Seen>(record(session.id));
  const kept = known?.body === undefined ? undefined : cardOf(known.body, session);
  let signed: SignedMetadata;
  try {
    signed = await openMetadata(ring, session.id, session.metadataVersion, session.metadata);
  } catch (error) {
    if (error instanceof SealError) return { titled: { kept } };
    throw error;
  }
  const seen: Seen = { epoch: signed.epoch, version: session.metadataVersion, body: signed.body };
  const isNew = !known || !isBefore(seen, known);
  // It was judged before. Whose key it is may have been removed since.
  const isSeen = known !== undefined && isNew && !isBefore(known, seen) && known.body === signed.body;
  const owners: { list?: List; failed?: unknown } = by
    ? { list: by }
    : await ownersList(context, session, isSeen ? undefined : signed);
  const { list } = owners;
  let [counts, failed] = [isSeen, owners.failed];
  if (!isSeen && isNew && list) {
    try {
      counts = await mayTitle(context, session, list, signed);
    } catch (error) {
      failed = error;
    }
  }
  const card = counts ? cardOf(signed.body, session) : undefined;
  if (card) await noteTitle(context, session.id, seen);
  const host = hostOf(session);
  const machine = host === undefined ? undefined : list?.machine(host)?.key;
  const part = machine === undefined ? undefined : await partOf(signed, session.id, machine);
  const unchecked = host === undefined || machine !== undefined ? undefined : uncheckedPart(signed, !list?.device(signed.key));
  const titled = { card, kept, ofMachine: part && read(part.body), signed: part ?? unchecked };
  return isNew && !counts && failed !== undefined ? { titled, failed } : { titled };
}

/** What is signed again: what counts, or what has counted here last. */
export const lasting = ({ card, kept }: Titled): Metadata | undefined => card ?? kept;

/** Title, directory, agent and host, if they count. */
export function shownOf({ card, ofMachine }: Titled): Metadata {
  const { title: _theirs, ...where } = ofMachine ?? {};
  return { ...card, ...where };
}

/** Signs metadata for the version that it gets. What the machine has signed stays in it. */
async function sealTitle(
  context: Context,
  session: Session,
  ring: KeyRing,
  version: number,
  body: string,
  ofMachine?: OfMachine,
): Promise<string> {
  const { keys, userId } = context;
  const { list } = await context.own();
  const admin = isOwner(session)
    ? undefined
    : await SharedRing.fromText(session.encryptedKey ?? "").asAdmin(userId, list.body.account);
  return sealMetadata(ring, session.id, version, { body, user: userId, admin, ofMachine }, keys.signer);
}

/** The metadata for a new key, under which what was signed for the one before counts no more. Undefined: none counted, or it cannot be
 * signed again. A title prevents no new key: one that does not fit is shortened or left out. */
export async function titleForNewKey(
  context: Context,
  session: Session,
  old: KeyRing,
  ring: KeyRing,
): Promise<{ metadata: string; seen: Seen } | undefined> {
  const before = await titledForWriting(context, session, old);
  const [whole, part] = [lasting(before), before.signed];
  const version = session.metadataVersion + 1;
  if ((!whole && !part) || !Number.isSafeInteger(version)) return undefined;
  const short = shortened(whole?.title);
  for (const [card, ofMachine] of [
    [whole ?? {}, part],
    [short, part],
    [{}, part],
    [short, undefined],
  ] as const) {
    const body = JSON.stringify(card);
    try {
      return {
        metadata: await sealTitle(context, session, ring, version, body, ofMachine),
        seen: { epoch: ring.epoch, version, body },
      };
    } catch (error) {
      if (!(error instanceof SealError)) throw error;
    }
  }
  return undefined;
}

/** Replaces the metadata. A server that was restored gets it once for each version that it lacks, so that no device takes it for an old
 * one. */
export async function writeTitle(
  context: Context,
  session: Session,
  ring: KeyRing,
  card: Metadata,
  before: Titled,
): Promise<Session> {
  const { client, store } = context;
  const shown = session.metadataVersion;
  const known = await store.get<Seen>(record(session.id));
  // Versions of an earlier key are below every one of this key.
  const newest = Math.max(shown, known && known.epoch >= ring.epoch ? known.version : 0);
  if (newest - shown > MOST_AHEAD || !Number.isSafeInteger(newest + 1)) {
    throw new Refused(
      "The server has a much older state of this session than this device has seen. With a new key of the session titles count again.",
    );
  }
  const body = JSON.stringify(card);
  for (let version = shown; ; version++) {
    const metadata = await sealTitle(context, session, ring, version + 1, body, before.signed);
    const change: components["schemas"]["UpdateSession"] = { metadata, expectedMetadataVersion: version };
    const changed = await client.call("PATCH", "/v1/sessions/{id}", { path: { id: session.id }, body: change });
    if (version < newest) continue;
    await noteTitle(context, session.id, { epoch: ring.epoch, version: version + 1, body });
    return changed;
  }
}

/** Notes what was seen or written. Anything older is an old title that is shown again. */
export async function noteTitle(context: Context, session: string, seen: Seen): Promise<void> {
  const isNext = (known: Seen | undefined): boolean =>
    known ? isBefore(known, seen) && seen.version - known.version <= MOST_AHEAD : seen.version <= MOST_AT_FIRST;
  if (!isNext(await context.store.get<Seen>(record(session)))) return;
  const short: Seen = {
    ...seen,
    body: seen.body === undefined || utf8Length(seen.body) <= LONGEST_KEPT ? seen.body : titleOf(seen.body),
  };
  await context.store.update<Seen>(record(session), (known) => (isNext(known) ? short : known));
}

/** The title alone of metadata that is too long. */
const titleOf = (body: string): string => JSON.stringify(shortened(read(body)?.title));

function shortened(title: unknown): Metadata {
  if (typeof title !== "string") return {};
  const characters = Array.from(title);
  return { title: characters.length > SHORT_TITLE ? `${characters.slice(0, SHORT_TITLE - 1).join("")}…` : title };
}

/** Undefined: it is no JSON object. */
function read(body: string): Metadata | undefined {
  try {
    return asObject(utf8(body)) as Metadata;
  } catch (error) {
    if (error instanceof SealError) return undefined;
    throw error;
  }
}

/** Where the agent of a hosted session works is for its machine to say. */
function cardOf(body: string, session: Session): Metadata | undefined {
  const card = read(body);
  if (!card || !session.hosted) return card;
  const { path: _path, host: _host, agent: _agent, ...rest } = card;
  return rest;
}

/** The owner's device list, and why there may be a newer one. The one that is known here does, where it says who has signed and what the
 * session's machine is: a device or a machine may have been added a moment ago. */
async function ownersList(
  context: Context,
  session: Session,
  signed: SignedMetadata | undefined,
): Promise<{ list?: List; failed?: unknown }> {
  const { ownerId, id } = session;
  const isOwn = ownerId === context.userId;
  const host = hostOf(session);
  const signer = signed && (signed.user === ownerId ? signed.key : await signed.admin?.grantedBy(id));
  const isEnough = (list: List): boolean => {
    const entry = signer === undefined ? undefined : list.device(signer);
    const hasSigner = signer === undefined || (entry !== undefined && makesKeys(host)(entry));
    return hasSigner && (host === undefined || list.machine(host) !== undefined);
  };
  let list: List | undefined;
  try {
    list = isOwn ? (await context.own()).list : await context.people.list(ownerId);
    if (!isEnough(list)) list = isOwn ? (await context.own(JUST_READ)).list : await context.people.list(ownerId, JUST_READ);
    return { list };
  } catch (error) {
    return { ...(list && { list }), ...(!saysNo(error) && { failed: error }) };
  }
}

/** Whether the signer is a device of the owner, the session's machine, or an admin by grant. Rejects when it cannot be found out now. */
async function mayTitle(context: Context, session: Session, list: List, signed: SignedMetadata): Promise<boolean> {
  if (signed.user === session.ownerId) {
    const entry = list.device(signed.key);
    return entry !== undefined && makesKeys(hostOf(session))(entry);
  }
  const { admin } = signed;
  // With the next key the owner grants it directly. An admin of an earlier epoch may have lost that.
  if (admin?.user !== signed.user || admin.epoch !== signed.epoch) return false;
  const granted = await admin.grantedBy(session.id);
  if (granted === undefined || !list.commands(granted)) return false;
  try {
    const theirs = await context.people.list(admin.user);
    return theirs.body.account === admin.account && theirs.commands(signed.key);
  } catch (error) {
    if (saysNo(error)) return false;
    throw error;
  }
}

/** Whether the server has no such user or no list of theirs, or shows one that is not good. After anything else it may say more later. */
function saysNo(error: unknown): boolean {
  if (error instanceof Problem) return error.status >= 400 && error.status < 500 && ![401, 408, 429].includes(error.status);
  if (error instanceof Overtaken) return false;
  return error instanceof Distrust || error instanceof Refused || error instanceof SealError;
}
