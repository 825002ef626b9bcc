// The code that links a device: the id of the linking, and a secret that no server sees.

import { decode, decodeExact, digestText, encode, equal, random, readU32, utf8, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import { isSigned, type Signer } from "../ed25519.js";
import { hkdf } from "../hpke.js";
import { asObject, decrypt, encrypt, importAes } from "./ring.js";
import type { components } from "../../openapi.js";

export type DeviceLinkRequest = components["schemas"]["DeviceLinkRequest"];

/** What a new device says of itself. */
type About = Pick<DeviceLinkRequest, "publicKey" | "boxKey" | "name" | "kind" | "by">;

/** What the first device tells the new one, sealed with the secret of the link. */
export interface LinkAnswer {
  userId: string;
  /** The public key of the account's first device. */
  account: string;
  version: number;
  digest: string;
}

const FORM = "v1.";
const ANSWER = "ensemble-link-answer-v1";

/** What the QR code holds: `<address>/link#v1.<id>.<secret>`. */
export class LinkCode {
  private constructor(
    /** The address of the server. */
    readonly base: string,
    readonly id: string,
    private readonly secret: Bytes,
  ) {}

  static generate(base: string, id: string): LinkCode {
    return new LinkCode(base.replace(/\/+$/, ""), id, random(32));
  }

  /** Reads `address`. */
  static fromAddress(address: string): LinkCode {
    const [, base, id, text] = /^(.+)\/link\/?#v1\.([^.]+)\.([^.]+)$/.exec(address.trim()) ?? [];
    const secret = decodeExact(text, 32);
    if (base === undefined || !decodeExact(id, 16) || id === undefined || !secret) {
      throw new SealError(
        "format",
        "This is not the address that `ensemble link` shows: https://…/link#v1.… with 22 and 43 characters.",
      );
    }
    return new LinkCode(base, id, secret);
  }

  /** The whole address. A secret for ten minutes. */
  get address(): string {
    return `${this.base}/link#${FORM}${this.id}.${encode(this.secret)}`;
  }

  /** The request of a new device. */
  async request(device: {
    signer: Signer;
    boxKey: string;
    name: string;
    kind: DeviceLinkRequest["kind"];
    by?: string | undefined;
  }): Promise<DeviceLinkRequest> {
    const { signer, boxKey, name, kind, by } = device;
    const about = { publicKey: signer.publicKey, boxKey, name, kind, ...(by !== undefined && { by }) };
    const text = await this.#text(about);
    const mac = encode(await this.#code("ensemble-link-request-v1", text));
    return { ...about, mac, signature: encode(await signer.sign(text)) };
  }

  /** Whether the device that asks has seen the code, and holds its key. */
  async isGood(request: DeviceLinkRequest): Promise<boolean> {
    const text = await this.#text(request);
    const [mac, expected] = [decodeExact(request.mac, 32), await this.#code("ensemble-link-request-v1", text)];
    return mac !== undefined && equal(mac, expected) && (await isSigned(request.publicKey, text, request.signature));
  }

  /** The six digits that the new device shows and a person types at the first one. */
  async digits(request: About): Promise<string> {
    const code = await this.#code("ensemble-link-digits-v1", await this.#text(request));
    return String(readU32(code, 0) % 1_000_000).padStart(6, "0");
  }

  /** `base64url(nonce (12) | ciphertext and tag)`. */
  async sealAnswer(answer: LinkAnswer): Promise<string> {
    return encode(await encrypt(await this.#cipher(), utf8(JSON.stringify(answer)), `${ANSWER}\n${this.id}`));
  }

  async openAnswer(sealed: string): Promise<LinkAnswer> {
    const opened = asObject(await decrypt(await this.#cipher(), decode(sealed) ?? new Uint8Array(), `${ANSWER}\n${this.id}`));
    const { userId, account, version, digest } = opened;
    if (typeof userId !== "string" || typeof account !== "string" || !Number.isInteger(version) || typeof digest !== "string") {
      throw new SealError("format", "The answer of the other device has a form that is not known here.");
    }
    return { userId, account, version: version as number, digest };
  }

  async #text({ publicKey, boxKey, kind, name, by }: About): Promise<Bytes> {
    const lines = ["ensemble-link-v2", this.base, this.id, publicKey, boxKey, kind, await digestText(name), by ?? ""];
    return utf8(lines.join("\n"));
  }

  async #code(purpose: string, text: Bytes): Promise<Bytes> {
    const { subtle } = globalThis.crypto;
    const raw = await hkdf(this.secret, purpose);
    const key = await subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    return new Uint8Array(await subtle.sign("HMAC", key, text));
  }

  async #cipher(): Promise<CryptoKey> {
    return importAes(await hkdf(this.secret, ANSWER));
  }
}
