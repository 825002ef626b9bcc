// Rings sealed to one person or machine and signed by who made them; and the state that the clients of an account share.

import { concat, decodeExact, encode, sha256, utf8, type Bytes } from "../bytes.js";
import type { Signer } from "../credential.js";
import { SealError } from "../errors.js";
import { isSigned } from "./ed25519.js";
import { openWith, sealTo, type BoxPair } from "./hpke.js";
import { KeyRing } from "./ring.js";

/** What a sealed ring is for: the text that is authenticated with it. */
export const bindings = {
  /** A session's ring for its owner; of one that a machine hosts, with that machine. */
  session: (session: string, owner: string, machine?: string | null): string =>
    `ensemble-session-key-v2\n${session}\n${owner}${machine ? `\n${machine}` : ""}`,
  /** The ring of a session that a machine hosts, for that machine. */
  host: (session: string, machine: string): string => `ensemble-host-key-v1\n${session}\n${machine}`,
  share: (session: string, recipient: string): string => `ensemble-share-key-v1\n${session}\n${recipient}`,
  machine: (machine: string): string => `ensemble-machine-key-v1\n${machine}`,
} as const;

/** A ring, and the public key of who sealed it. Whether they may is for the caller to say. */
export interface SignedRing {
  readonly ring: KeyRing;
  readonly signer: string;
}

const RING = "ensemble-ring-v1";
const STATE = "ensemble-client-state-v1";

export const sealRing = (ring: KeyRing, to: string, binding: string, signer: Signer): Promise<string> =>
  sealSigned(ring.bytes, to, RING, binding, signer);

export async function openRing(sealed: string, pair: BoxPair, binding: string): Promise<SignedRing> {
  const { plaintext, signer } = await openSigned(sealed, pair, RING, binding);
  return { ring: KeyRing.fromBytes(plaintext), signer };
}

/** JSON that the clients of an account share, sealed to its content key. */
export const sealClientState = (json: string, to: string, account: string, signer: Signer): Promise<string> =>
  sealSigned(utf8(json), to, STATE, `${STATE}\n${account}`, signer);

export const openClientState = (sealed: string, pair: BoxPair, account: string): Promise<{ plaintext: Bytes; signer: string }> =>
  openSigned(sealed, pair, STATE, `${STATE}\n${account}`);

async function sealSigned(plaintext: Bytes, to: string, purpose: string, aad: string, signer: Signer): Promise<string> {
  const key = decodeExact(signer.publicKey, 32);
  if (!key) throw new SealError("format", "The signer has no Ed25519 key.");
  const signature = await signer.sign(await signedText(purpose, aad, plaintext));
  return sealTo(to, concat(plaintext, key, signature), aad);
}

async function openSigned(
  sealed: string,
  pair: BoxPair,
  purpose: string,
  aad: string,
): Promise<{ plaintext: Bytes; signer: string }> {
  const opened = await openWith(pair, sealed, aad);
  const at = opened.length - 96;
  if (at < 0) throw new SealError("format", "What was opened is too short.");
  const [plaintext, signer] = [opened.slice(0, at), encode(opened.subarray(at, at + 32))];
  if (!(await isSigned(signer, await signedText(purpose, aad, plaintext), encode(opened.subarray(at + 32))))) {
    throw new SealError("signature", "It is not signed by who made it.");
  }
  return { plaintext, signer };
}

/** The purpose and what is authenticated, each in a line, and the SHA-256 of the plaintext. */
const signedText = async (purpose: string, aad: string, plaintext: Bytes): Promise<Bytes> =>
  concat(utf8(`${purpose}\n${aad}\n`), await sha256(plaintext));
