// Rings sealed to one person or machine and signed by who made them; and the state that the clients of an account share.

import { concat, decode, decodeExact, encode, sha256, utf8, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import { isSigned, type Signer } from "../ed25519.js";
import { openRaw, sealRaw, unknownForm, type BoxPair } from "../hpke.js";
import { KeyRing } from "./ring.js";

/** What a sealed ring is for: the text that is authenticated with it. */
export const bindings = {
  /** A session's ring for its owner; of one that a machine hosts, with that machine. */
  session: (session: string, owner: string, machine?: string | null): string =>
    `ensemble-session-key-v2\n${session}\n${owner}${machine ? `\n${machine}` : ""}`,
  /** The ring of a session that a machine hosts, for that machine, made when the owner's newest list had this content epoch. */
  host: (session: string, machine: string, contentEpoch: number): string =>
    `ensemble-host-key-v2\n${session}\n${machine}\n${contentEpoch}`,
  /** A session's ring for a user with a share; of one that a machine hosts, with that machine. */
  share: (session: string, recipient: string, machine?: string): string =>
    `ensemble-share-key-v2\n${session}\n${recipient}\n${machine ?? ""}`,
  machine: (machine: string): string => `ensemble-machine-key-v1\n${machine}`,
} as const;

/** A ring, and the public key of who sealed it. Whether they may is for the caller to say. */
export interface SignedRing {
  readonly ring: KeyRing;
  readonly signer: string;
}

const RING = "ensemble-ring-v2";
/** The first byte of what is sealed and signed. */
const SIGNED = 2;

export const sealRing = (ring: KeyRing, to: string, binding: string, signer: Signer): Promise<string> =>
  sealSigned(ring.bytes, to, binding, `${RING}\n${binding}`, signer);

export async function openRing(sealed: string, pair: BoxPair, binding: string): Promise<SignedRing> {
  const { plaintext, signer } = await openSigned(sealed, pair, binding, `${RING}\n${binding}`);
  return { ring: KeyRing.fromBytes(plaintext), signer };
}

const state = (account: string, version: number): string => `ensemble-client-state-v2\n${account}\n${version}`;

/** JSON that the clients of an account share, sealed to its content key. `version` is the one that it gets. */
export const sealClientState = (json: string, to: string, account: string, version: number, signer: Signer): Promise<string> =>
  sealSigned(utf8(json), to, state(account, version), state(account, version), signer);

export const openClientState = (
  sealed: string,
  pair: BoxPair,
  account: string,
  version: number,
): Promise<{ plaintext: Bytes; signer: string }> => openSigned(sealed, pair, state(account, version), state(account, version));

/** `base64url(0x02 | signer's key (32) | signature (64) | encapsulated key (32) | ciphertext and tag)`. The ciphertext is bound to one
 * reader's key (RFC 9180, section 4.1), so a signature over it holds for that seal only. */
async function sealSigned(plaintext: Bytes, to: string, aad: string, firstLines: string, signer: Signer): Promise<string> {
  const key = decodeExact(signer.publicKey, 32);
  if (!key) throw new SealError("format", "The signer has no Ed25519 key.");
  const sealed = await sealRaw(to, plaintext, aad);
  return encode(concat(Uint8Array.of(SIGNED), key, await signer.sign(await signedText(firstLines, sealed)), sealed));
}

async function openSigned(
  text: string,
  pair: BoxPair,
  aad: string,
  firstLines: string,
): Promise<{ plaintext: Bytes; signer: string }> {
  const blob = decode(text);
  if (blob?.[0] !== SIGNED || blob.length < 97) throw unknownForm();
  const [signer, signature, sealed] = [encode(blob.subarray(1, 33)), encode(blob.subarray(33, 97)), blob.slice(97)];
  if (!(await isSigned(signer, await signedText(firstLines, sealed), signature))) {
    throw new SealError("signature", "It is not signed by who made it.");
  }
  return { plaintext: await openRaw(pair, sealed, aad), signer };
}

/** The first lines, and the SHA-256 of what is sealed. */
const signedText = async (firstLines: string, sealed: Bytes): Promise<Bytes> =>
  utf8(`${firstLines}\n${encode(await sha256(sealed))}`);
