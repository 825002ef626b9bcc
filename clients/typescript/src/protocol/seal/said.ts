// What is said of a session apart from its messages, signed like a message: its metadata, by which people find it, and the glance of its
// machine. Whether a signer may is for the caller to say.

import { encode, utf8, utf8Length, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import { isSigned, type Signer } from "../ed25519.js";
import { asObject, epochOf, openContent, openJson, purposes, sealJson, type KeyRing } from "./ring.js";
import { Admin } from "./share.js";

const METADATA = "ensemble-session-metadata-v3";
const AGENT_STATE = "ensemble-agent-state-v1";
/** The form of both. */
const FORM = 1;
/** The longest body of metadata that counts, in bytes. With a new key the metadata is signed again, and some numbers are written longer
 * then: it has to fit all the same. */
export const LONGEST_METADATA = 16 << 10;
/** The longest key or signature of a part. */
const LONGEST_SIGNATURE = 128;

/** What the machine of a session has signed of some version of its metadata. Others replace the metadata, to give the session a title;
 * this is carried along in theirs, because the directory is chosen by it. */
export interface OfMachine {
  version: number;
  epoch: number;
  body: string;
  key: string;
  sig: string;
}

/** Metadata before it is signed. */
export interface NewMetadata {
  /** A JSON object. The signature is over its bytes. */
  body: string;
  /** The user whose device the signer is. */
  user: string;
  /** How a signer that is no device of the owner shows that they are an admin of the session. */
  admin?: Admin | undefined;
  ofMachine?: OfMachine | undefined;
}

/** Metadata that its signer has signed for this session, version and key. */
export interface SignedMetadata extends NewMetadata {
  key: string;
  /** The epoch of the session's key. */
  epoch: number;
  /** The same with its signature. */
  own: OfMachine;
}

/** The first line, the session's id, the version and the epoch of the key, each in a line, and the body. */
const signedText = (first: string, session: string, version: number, epoch: number, body: string): Bytes =>
  utf8([first, session, version, epoch, body].join("\n"));

/** Signs the metadata of a session for the version that it gets, and seals it with the newest key. Rejects with a `SealError` of the kind
 * `bound` what is so long that it would not count. */
export async function sealMetadata(
  ring: KeyRing,
  session: string,
  version: number,
  metadata: NewMetadata,
  signer: Signer,
): Promise<string> {
  const { body, user, admin, ofMachine } = metadata;
  if (utf8Length(body) > LONGEST_METADATA) throw tooLong();
  const sig = encode(await signer.sign(signedText(METADATA, session, version, ring.epoch, body)));
  const rest = { ...(admin && { admin: admin.toText() }), ...(ofMachine && { machine: ofMachine }) };
  return sealJson(ring, purposes.sessionMetadata(session), { v: FORM, body, user, key: signer.publicKey, sig, ...rest });
}

/** Opens what `sealMetadata` has made for the same session and version. Also refused under an earlier key than the newest one: who was
 * removed has that one. */
export async function openMetadata(ring: KeyRing, session: string, version: number, sealed: string): Promise<SignedMetadata> {
  const { v, body, user, key, sig, admin, machine } = await openJson(ring, purposes.sessionMetadata(session), sealed);
  const epoch = epochOf(sealed);
  if (v !== FORM || typeof body !== "string" || typeof user !== "string" || typeof key !== "string" || typeof sig !== "string")
    throw unsigned();
  if (epoch !== ring.epoch || !(await isSigned(key, signedText(METADATA, session, version, epoch, body), sig)))
    throw unsigned();
  if (utf8Length(body) > LONGEST_METADATA) throw tooLong();
  const own = { version, epoch, body, key, sig };
  return {
    body,
    user,
    key,
    epoch,
    own,
    admin: typeof admin === "string" ? Admin.fromText(admin) : undefined,
    ofMachine: readPart(machine),
  };
}

/** What the holder of this key has signed last: this version, or one before. */
export async function partOf(signed: SignedMetadata, session: string, machine: string): Promise<OfMachine | undefined> {
  if (signed.key === machine) return signed.own;
  const part = signed.ofMachine;
  if (part?.key !== machine) return undefined;
  const text = signedText(METADATA, session, part.version, part.epoch, part.body);
  return (await isSigned(machine, text, part.sig)) ? part : undefined;
}

/** What may be the machine's where its key is not known: who reads it checks it. `withOwn`: who has signed this version may be the machine. */
export const uncheckedPart = (signed: SignedMetadata, withOwn: boolean): OfMachine | undefined =>
  signed.ofMachine ?? (withOwn ? signed.own : undefined);

/** Signs a JSON object for the version that it gets as the session's `agentState`, and seals it with the newest key. */
export async function sealAgentState(
  ring: KeyRing,
  session: string,
  version: number,
  body: string,
  machine: Signer,
): Promise<string> {
  const sig = encode(await machine.sign(signedText(AGENT_STATE, session, version, ring.epoch, body)));
  return sealJson(ring, purposes.agentState(session), { v: FORM, body, key: machine.publicKey, sig });
}

/** Opens what `sealAgentState` has made for the same session and version, if the holder of this key has signed it. */
export async function openAgentState(
  ring: KeyRing,
  session: string,
  version: number,
  sealed: string,
  machine: string,
): Promise<Record<string, unknown>> {
  const { v, body, key, sig } = asObject(await openContent(ring, purposes.agentState(session), sealed));
  const isForm = v === FORM && typeof body === "string" && key === machine;
  if (!isForm || !(await isSigned(machine, signedText(AGENT_STATE, session, version, epochOf(sealed), body), sig)))
    throw unsigned();
  return asObject(utf8(body));
}

function readPart(value: unknown): OfMachine | undefined {
  if (value === null || typeof value !== "object") return undefined;
  const { version, epoch, body, key, sig } = value as Record<string, unknown>;
  if (typeof version !== "number" || typeof epoch !== "number") return undefined;
  if (typeof body !== "string" || typeof key !== "string" || typeof sig !== "string") return undefined;
  // It is passed on without being read.
  if (utf8Length(body) > LONGEST_METADATA || Math.max(key.length, sig.length) > LONGEST_SIGNATURE) return undefined;
  return { version, epoch, body, key, sig };
}

const tooLong = (): SealError => new SealError("bound", "The title is too long. Shorten it.");
const unsigned = (): SealError => new SealError("signature", "It is not signed for this version and key of the session.");
