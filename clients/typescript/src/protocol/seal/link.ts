// The secret of a public link. It is in the fragment of the link, which browsers send to no server.

import { concat, decode, decodeExact, encode, random, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import { isSigningKey } from "../ed25519.js";
import { decrypt, encrypt, importAes, KeyRing } from "./ring.js";

const VERSION = 1;
const FORM = "v1.";
const binding = (session: string): string => `ensemble-link-key-v1\n${session}`;

/** 256 random bits that open a session's ring for all who have the whole link. */
export class LinkSecret {
  private constructor(
    private readonly bits: Bytes,
    /** The public key of the machine that hosts the session. A reader without an account gets no device list, so the link names the
     * machine. */
    readonly host: string | undefined,
  ) {}

  static generate(host?: string): LinkSecret {
    return new LinkSecret(random(32), host);
  }

  /** Reads `fragment`, with or without `#`. */
  static fromFragment(fragment: string): LinkSecret {
    const text = fragment.replace(/^#/, "");
    const [secret, host, ...rest] = text.startsWith(FORM) ? text.slice(FORM.length).split(".") : [];
    const bits = secret === undefined ? undefined : decodeExact(secret, 32);
    const isWhole = (host === undefined || isSigningKey(host)) && rest.length === 0;
    if (!bits || !isWhole) throw new SealError("format", "The link is not complete: the part after the # is missing or cut.");
    return new LinkSecret(bits, host);
  }

  /** `v1.` and the secret; of a session that a machine hosts also `.` and its key. */
  get fragment(): string {
    return FORM + encode(this.bits) + (this.host === undefined ? "" : `.${this.host}`);
  }

  /** The whole link. */
  address(url: string): string {
    return `${url}#${this.fragment}`;
  }

  /** The link's `encryptedKey`: `base64url(0x01 | nonce (12) | ciphertext and tag)`. */
  async seal(ring: KeyRing, session: string): Promise<string> {
    const sealed = await encrypt(await importAes(this.bits), ring.bytes, binding(session));
    return encode(concat(Uint8Array.of(VERSION), sealed));
  }

  async open(sealed: string, session: string): Promise<KeyRing> {
    const blob = decode(sealed);
    if (!blob || blob[0] !== VERSION) throw new SealError("format", "The link's key has a form that is not known here.");
    return KeyRing.fromBytes(await decrypt(await importAes(this.bits), blob.subarray(1), binding(session)));
  }
}

/** Takes `https://host/prefix/share/TOKEN#v1.SECRET` apart. */
export function readShareAddress(address: string): { base: string; token: string; secret: LinkSecret } {
  const found = /^(.*)\/share\/([^/#?]+)\/?(?:\?[^#]*)?#(.+)$/.exec(address.trim());
  const [, base, token, fragment] = found ?? [];
  if (base === undefined || token === undefined || fragment === undefined) {
    throw new SealError("format", "This is no complete link. One looks like https://host/share/TOKEN#v1.KEY.");
  }
  return { base, token, secret: LinkSecret.fromFragment(fragment) };
}
