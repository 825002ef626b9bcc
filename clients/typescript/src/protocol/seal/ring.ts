// The keys of one session or machine, one for each epoch, oldest first; and what is encrypted with them.

import { concat, decode, encode, fromUtf8, random, readU32, sha256, u32, utf8, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";

const { subtle } = globalThis.crypto;
/** The format of contents, their first byte. */
const CONTENT = 1;
/** The format of a ring, its first byte. */
const VERSION = 2;
const FIRST_EPOCH = 1;
/** What fits into the 8 KiB that the service stores for a sealed ring. */
const MOST_KEYS = 170;
/** The last epoch that a ring can have. */
export const LAST_EPOCH = MOST_KEYS;

/** One 256-bit secret for each epoch, from 1 on. */
export class Secrets {
  constructor(private readonly all: Bytes) {}

  static generate(): Secrets {
    return new Secrets(random(32));
  }

  /** Reads `version (1) | first epoch (4) | before bytes | secrets (32 each)`. A ring that begins with another epoch than 1 is refused: it
   * could keep its newest key for ever. */
  static fromBytes(bytes: Uint8Array, version: number, before: number): Secrets {
    const secrets = (bytes.length - 5 - before) / 32;
    const isGood = bytes[0] === version && Number.isInteger(secrets) && secrets >= 1 && secrets <= MOST_KEYS;
    if (!isGood || readU32(bytes, 1) !== FIRST_EPOCH) throw unknown();
    return new Secrets(bytes.slice(5 + before) as Bytes);
  }

  toBytes(version: number, before: Bytes = new Uint8Array()): Bytes {
    return concat(Uint8Array.of(version), u32(FIRST_EPOCH), before, this.all);
  }

  next(): Secrets {
    if (this.epoch >= MOST_KEYS) throw new SealError("bound", "The key was changed too often. No further change is possible.");
    return new Secrets(concat(this.all, random(32)));
  }

  get epoch(): number {
    return this.all.length / 32;
  }

  /** The 32 bytes of an epoch. */
  of(epoch: number): Bytes {
    if (!Number.isInteger(epoch) || epoch < FIRST_EPOCH || epoch > this.epoch) {
      throw new SealError("epoch", `It was sealed with key ${epoch}, which you do not have.`);
    }
    const at = 32 * (epoch - FIRST_EPOCH);
    return this.all.slice(at, at + 32);
  }
}

const unknown = (): SealError => new SealError("format", "The keys have a form that is not known to this version.");

/** One 256-bit key for each epoch, from 1 on. */
export class KeyRing {
  readonly #secrets: Secrets;
  readonly #keys = new Map<number, Promise<CryptoKey>>();

  private constructor(
    secrets: Secrets,
    /** The epoch of the oldest grant that counts: who passes the ring on gives it to grants of this epoch or a later one. */
    readonly floor: number,
  ) {
    this.#secrets = secrets;
  }

  /** A ring with one new key. */
  static generate(): KeyRing {
    return new KeyRing(Secrets.generate(), FIRST_EPOCH);
  }

  static fromBytes(bytes: Uint8Array): KeyRing {
    const secrets = Secrets.fromBytes(bytes, VERSION, 4);
    const floor = readU32(bytes, 5);
    if (floor < FIRST_EPOCH || floor > secrets.epoch) throw unknown();
    return new KeyRing(secrets, floor);
  }

  /** This ring with a new key for the next epoch. Its maker passes it on to those who may have it, so grants of earlier epochs count no
   * more. */
  next(): KeyRing {
    const secrets = this.#secrets.next();
    return new KeyRing(secrets, secrets.epoch);
  }

  /** The same where another one follows at once: grants count as before. */
  nextInBetween(): KeyRing {
    return new KeyRing(this.#secrets.next(), this.floor);
  }

  /** The epoch of the newest key, which seals. */
  get epoch(): number {
    return this.#secrets.epoch;
  }

  /** `0x02 | first epoch (4) | floor (4) | keys (32 each)`. */
  get bytes(): Bytes {
    return this.#secrets.toBytes(VERSION, u32(this.floor));
  }

  /** Which key an epoch has, without the key. Undefined: it has none of this epoch. */
  async digestOf(epoch: number): Promise<string | undefined> {
    return epoch <= this.epoch ? encode(await sha256(this.#secrets.of(epoch))) : undefined;
  }

  async cipher(epoch: number): Promise<CryptoKey> {
    let key = this.#keys.get(epoch);
    if (!key) {
      key = importAes(this.#secrets.of(epoch));
      this.#keys.set(epoch, key);
    }
    return key;
  }
}

export const importAes = (key: Bytes): Promise<CryptoKey> =>
  subtle.importKey("raw", key, "AES-GCM", false, ["encrypt", "decrypt"]);

/** AES-256-GCM (NIST SP 800-38D) with a new random nonce in front. */
export async function encrypt(key: CryptoKey, plaintext: Bytes, aad: string): Promise<Bytes> {
  const iv = random(12);
  const parameters = { name: "AES-GCM", iv, additionalData: utf8(aad) };
  return concat(iv, new Uint8Array(await subtle.encrypt(parameters, key, plaintext)));
}

/** Opens what `encrypt` has made. */
export async function decrypt(key: CryptoKey, sealed: Uint8Array, aad: string): Promise<Bytes> {
  if (sealed.length < 12 + 16) throw new SealError("format", "What is sealed is too short.");
  const parameters = { name: "AES-GCM", iv: sealed.slice(0, 12), additionalData: utf8(aad) };
  try {
    return new Uint8Array(await subtle.decrypt(parameters, key, sealed.slice(12)));
  } catch {
    throw new SealError("refused", "It was sealed with another key, or it was changed on the way.");
  }
}

/** What a content is. It is part of what is authenticated, so that nothing passes as something else. */
export interface Purpose {
  readonly name: string;
  readonly of: string;
}

export const purposes = {
  sessionMetadata: (session: string): Purpose => ({ name: "ensemble-session-metadata-v3", of: session }),
  agentState: (session: string): Purpose => ({ name: "ensemble-agent-state-v1", of: session }),
  message: (session: string): Purpose => ({ name: "ensemble-message-v1", of: session }),
  liveFrame: (session: string): Purpose => ({ name: "ensemble-live-v1", of: session }),
  machineMetadata: (machine: string): Purpose => ({ name: "ensemble-machine-metadata-v1", of: machine }),
} as const;

const associated = ({ name, of }: Purpose, epoch: number): string => `${name}\n${of}\n${epoch}`;

/** `base64url(0x01 | epoch (4) | nonce (12) | ciphertext and tag)`, with the newest key. */
export async function sealContent(ring: KeyRing, purpose: Purpose, plaintext: Bytes): Promise<string> {
  const { epoch } = ring;
  const sealed = await encrypt(await ring.cipher(epoch), plaintext, associated(purpose, epoch));
  return encode(concat(Uint8Array.of(CONTENT), u32(epoch), sealed));
}

/** Opens a content with the key of its epoch. */
export async function openContent(ring: KeyRing, purpose: Purpose, sealed: string): Promise<Bytes> {
  const { blob, epoch } = parts(sealed);
  return decrypt(await ring.cipher(epoch), blob.subarray(5), associated(purpose, epoch));
}

/** The epoch of the key of a content, as it says itself. It is true if it opens. */
export const epochOf = (sealed: string): number => parts(sealed).epoch;

function parts(sealed: string): { blob: Bytes; epoch: number } {
  const blob = decode(sealed);
  if (!blob || blob[0] !== CONTENT || blob.length < 5) {
    throw new SealError("format", "The content has a form that is not known to this version.");
  }
  return { blob, epoch: readU32(blob, 1) };
}

export const sealJson = (ring: KeyRing, purpose: Purpose, value: unknown): Promise<string> =>
  sealContent(ring, purpose, utf8(JSON.stringify(value)));

/** Opens a JSON object. What it has is for the caller to check. */
export async function openJson(ring: KeyRing, purpose: Purpose, sealed: string): Promise<Record<string, unknown>> {
  return asObject(await openContent(ring, purpose, sealed));
}

export function asObject(bytes: Bytes): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(fromUtf8(bytes));
  } catch {
    throw new SealError("format", "What was opened is no JSON.");
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new SealError("format", "What was opened is no JSON object.");
  }
  return value as Record<string, unknown>;
}
