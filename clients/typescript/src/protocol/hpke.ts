// Bytes sealed to the X25519 key of one reader: HPKE in base mode (RFC 9180), and the key pairs for it.

import { Aes256Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";
import { concat, decode, decodeExact, encode, utf8, type Bytes } from "./bytes.js";
import { SealError } from "../errors.js";
import { fromHex, importSecret, isOneOf } from "./ed25519.js";
import { withNewKey } from "./new-key.js";

const { subtle } = globalThis.crypto;
/** The first byte of what is sealed and not signed. */
const SEALED = 1;
const suite = (): CipherSuite =>
  new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes256Gcm() });

/** The points of small order on curve25519 and their forms that are not reduced (RFC 7748, section 6.1). */
const SMALL_ORDER = [
  "00".repeat(32),
  `01${"00".repeat(31)}`,
  "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
  "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
  `ec${"ff".repeat(30)}7f`,
  `ed${"ff".repeat(30)}7f`,
  `ee${"ff".repeat(30)}7f`,
].map(fromHex);

/** Whether a text is an X25519 public key in its one form, and not of small order. */
export function isBoxKey(text: unknown): text is string {
  const key = decodeExact(text, 32);
  return key !== undefined && !isOneOf(key, SMALL_ORDER);
}

/** A key pair that contents are sealed to. Its private half need not be extractable. */
export class BoxPair {
  constructor(
    readonly privateKey: CryptoKey,
    /** Base64url. */
    readonly publicKey: string,
  ) {}

  /** The pair of a secret of 32 bytes. */
  static async fromSecret(secret: Uint8Array): Promise<BoxPair> {
    const { privateKey, publicKey } = await importSecret("X25519", secret, ["deriveBits"]);
    return new BoxPair(privateKey, encode(publicKey));
  }

  /** The pair of a device, derived from the seed of its Ed25519 key. */
  static async ofSeed(seed: Uint8Array): Promise<BoxPair> {
    return BoxPair.fromSecret(await hkdf(seed, "ensemble-device-box-v1"));
  }

  /** The same, with a private half that can be wrapped. */
  static async readableOfSeed(seed: Uint8Array): Promise<{ secret: CryptoKey; publicKey: string }> {
    const { readable, publicKey } = await importSecret("X25519", await hkdf(seed, "ensemble-device-box-v1"), ["deriveBits"]);
    return { secret: readable, publicKey: encode(publicKey) };
  }
}

/** HKDF-SHA256 without salt, 32 bytes (RFC 5869). */
export async function hkdf(ikm: Uint8Array, info: string): Promise<Bytes> {
  const key = await subtle.importKey("raw", Uint8Array.from(ikm), "HKDF", false, ["deriveBits"]);
  const parameters = { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(), info: utf8(info) };
  return new Uint8Array(await subtle.deriveBits(parameters, key, 256));
}

const KEYS = "ensemble-key-v1";

/** `base64url(0x01 | encapsulated key (32) | ciphertext and tag)`. */
export const sealTo = async (to: string, plaintext: Bytes, aad: string, info = KEYS): Promise<string> =>
  encode(concat(Uint8Array.of(SEALED), await sealRaw(to, plaintext, aad, info)));

/** `encapsulated key (32) | ciphertext and tag`. */
export async function sealRaw(to: string, plaintext: Bytes, aad: string, info = KEYS): Promise<Bytes> {
  const key = decodeExact(to, 32);
  if (!key || isOneOf(key, SMALL_ORDER)) throw new SealError("format", "This is no key to which something can be sealed.");
  try {
    const recipientPublicKey = await subtle.importKey("raw", key, "X25519", true, []);
    const parameters = { recipientPublicKey, info: utf8(info) };
    const { enc, ct } = await withNewKey(() => suite().seal(parameters, plaintext, utf8(aad)));
    return concat(new Uint8Array(enc), new Uint8Array(ct));
  } catch {
    throw new SealError("refused", "It could not be sealed to this key.");
  }
}

/** Opens what `sealTo` has sealed. */
export async function openWith(pair: BoxPair, sealed: string, aad: string, info = KEYS): Promise<Bytes> {
  const blob = decode(sealed);
  if (blob?.[0] !== SEALED) throw unknownForm();
  return openRaw(pair, blob.subarray(1), aad, info);
}

export const unknownForm = (): SealError =>
  new SealError("format", "What is sealed has a form that is not known to this version.");

/** Opens what `sealRaw` has sealed. */
export async function openRaw(pair: BoxPair, sealed: Uint8Array, aad: string, info = KEYS): Promise<Bytes> {
  const publicKey = decodeExact(pair.publicKey, 32);
  if (!publicKey || sealed.length < 32 + 16) throw unknownForm();
  try {
    const recipient = await subtle.importKey("raw", publicKey, "X25519", true, []);
    const keys = { privateKey: pair.privateKey, publicKey: recipient };
    const parameters = { recipientKey: keys, enc: sealed.slice(0, 32), info: utf8(info) };
    return new Uint8Array(await suite().open(parameters, sealed.slice(32), utf8(aad)));
  } catch {
    throw new SealError("refused", "It was sealed for another user or with another key, or it was changed on the way.");
  }
}
