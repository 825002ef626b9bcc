// Ed25519 signatures (RFC 8032), checked strictly, and the keys that make them.

import { concat, decodeExact, encode, equal, type Bytes } from "./bytes.js";
import { withNewKey } from "./new-key.js";

/** What signs as a device: its Ed25519 public key (base64url), and signatures of 64 bytes. */
export interface Signer {
  readonly publicKey: string;
  sign(text: Bytes): Promise<Bytes>;
}

const { subtle } = globalThis.crypto;

/** The y coordinates of the points of small order, and their forms that are not reduced. With such a key a signature proves
 * nothing. The highest bit is the sign of x and is ignored. */
const SMALL_ORDER = [
  "00".repeat(32),
  `01${"00".repeat(31)}`,
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  `ec${"ff".repeat(30)}7f`,
  `ed${"ff".repeat(30)}7f`,
  `ee${"ff".repeat(30)}7f`,
].map(fromHex);

export function fromHex(text: string): Bytes {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

export function isOneOf(point: Uint8Array, points: readonly Uint8Array[]): boolean {
  const reduced = Uint8Array.from(point);
  reduced[31] = (reduced[31] ?? 0) & 0x7f;
  return points.some((one) => equal(one, reduced));
}

/** Whether a text is an Ed25519 public key in its one form, and not of small order. That it is a point of the curve shows when
 * something is checked with it. */
export function isSigningKey(text: unknown): text is string {
  const key = decodeExact(text, 32);
  return key !== undefined && !isOneOf(key, SMALL_ORDER);
}

/** The keys that were used last: reading a key costs as much as checking a signature. */
const known = new Map<string, Promise<CryptoKey>>();
const MOST_KNOWN = 256;

function verifying(key: string, bytes: Bytes): Promise<CryptoKey> {
  let found = known.get(key);
  if (!found) {
    found = subtle.importKey("raw", bytes, "Ed25519", false, ["verify"]);
    found.catch(() => known.delete(key));
    known.set(key, found);
    const oldest = known.size > MOST_KNOWN ? known.keys().next().value : undefined;
    if (oldest !== undefined) known.delete(oldest);
  }
  return found;
}

/** Whether this is a strict signature over the text (RFC 8032, section 5.1.7). Key and signature are base64url. */
export async function isSigned(signer: unknown, text: Bytes, signature: unknown): Promise<boolean> {
  const [key, sig] = [decodeExact(signer, 32), decodeExact(signature, 64)];
  if (!key || !sig || isOneOf(key, SMALL_ORDER) || isOneOf(sig.subarray(0, 32), SMALL_ORDER)) return false;
  try {
    return await subtle.verify("Ed25519", await verifying(signer as string, key), sig, text);
  } catch {
    return false;
  }
}

/** A device's key pair that signs. Its private half need not be extractable. */
export class SigningKey implements Signer {
  constructor(
    readonly privateKey: CryptoKey,
    readonly publicKey: string,
  ) {}

  /** A new key that scripts cannot export. */
  static async generate(): Promise<SigningKey> {
    const pair = (await withNewKey(() => subtle.generateKey("Ed25519", false, ["sign", "verify"]))) as CryptoKeyPair;
    return new SigningKey(pair.privateKey, encode(new Uint8Array(await subtle.exportKey("raw", pair.publicKey))));
  }

  /** The key of a seed of 32 bytes. */
  static async fromSeed(seed: Uint8Array): Promise<SigningKey> {
    const { privateKey, publicKey } = await importSecret("Ed25519", seed, ["sign"]);
    return new SigningKey(privateKey, encode(publicKey));
  }

  async sign(text: Bytes): Promise<Bytes> {
    return new Uint8Array(await subtle.sign("Ed25519", this.privateKey, text));
  }
}

const OIDS = { Ed25519: 0x70, X25519: 0x6e };

/** A raw secret in the one form that Web Crypto takes for private keys (RFC 8410, section 7). */
function pkcs8(name: "Ed25519" | "X25519", secret: Uint8Array): Bytes {
  const head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, OIDS[name], 4, 0x22, 4, 0x20];
  return concat(Uint8Array.from(head), secret);
}

/** A private key that cannot be exported, one that can, and the public half. */
export async function importSecret(
  name: "Ed25519" | "X25519",
  secret: Uint8Array,
  usages: KeyUsage[],
): Promise<{ privateKey: CryptoKey; readable: CryptoKey; publicKey: Bytes }> {
  const form = pkcs8(name, secret);
  // Only a key that can be exported says what its public half is.
  const readable = await subtle.importKey("pkcs8", form, name, true, usages);
  const { x } = await subtle.exportKey("jwk", readable);
  const publicKey = decodeExact(x, 32);
  if (!publicKey) throw new Error("The platform gives no public key.");
  const privateKey = await subtle.importKey("pkcs8", form, name, false, usages);
  form.fill(0);
  return { privateKey, readable, publicKey };
}
