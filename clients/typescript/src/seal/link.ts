// The secret of a public link. It is in the fragment of the link, which browsers send to no server.

import { concat, decode, decodeExact, encode, random, type Bytes } from "../bytes.js";
import { SealError } from "../errors.js";
import { decrypt, encrypt, importAes, KeyRing } from "./ring.js";

const VERSION = 1;
const FORM = "v1.";
const binding = (session: string): string => `ensemble-link-key-v1\n${session}`;

/** 256 random bits that open a session's ring for everybody who has the whole link. */
export class LinkSecret {
  private constructor(private readonly bits: Bytes) {}

  static generate(): LinkSecret {
    return new LinkSecret(random(32));
  }

  /** Reads `fragment`, with or without `#`. */
  static fromFragment(fragment: string): LinkSecret {
    const text = fragment.replace(/^#/, "");
    const bits = text.startsWith(FORM) ? decodeExact(text.slice(FORM.length), 32) : undefined;
    if (!bits) throw new SealError("format", "The link is not complete: the part after the # is missing or cut.");
    return new LinkSecret(bits);
  }

  /** `v1.` and the secret. */
  get fragment(): string {
    return FORM + encode(this.bits);
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
