// An invitation: its id, and a secret that no server sees.

import { decode, decodeExact, digestText, encode, equal, random, sha256, utf8, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import { isSigned, type Signer } from "../ed25519.js";
import { hkdf } from "../hpke.js";
import { asObject, decrypt, encrypt, importAes } from "./ring.js";
import type { components } from "../../openapi.js";

export type ClaimInvite = components["schemas"]["ClaimInvite"];
export type InviteClaim = components["schemas"]["InviteClaim"];
export type Admission = components["schemas"]["Admission"];

/** What the owner's device answers, sealed with the secret of the invitation. */
export interface InviteAnswer {
  /** The id of the session. */
  session: string;
  /** Whose it is. */
  owner: string;
  /** The public key of the owner's account. */
  account: string;
  version: number;
  digest: string;
  /** What the owner is called. */
  name: string;
  /** The key of the session's machine, and what the guest may do. */
  machine?: string;
  level?: string;
  may?: string;
}

/** Who claims an invitation, with the newest device list. */
interface Claiming {
  userId: string;
  account: string;
  version: number;
  digest: string;
}

const ADMISSION = "ensemble-invite-admission-v1";
const ANSWER = "ensemble-invite-answer-v1";

/** `<address>/join#v1.<id>.<secret>`. */
export class InviteCode {
  private constructor(
    /** The address of the server. */
    readonly base: string,
    readonly id: string,
    private readonly secret: Bytes,
  ) {}

  /** The secret of a new invitation, in base64url, and what the server keeps of it. */
  static async newSecret(): Promise<{ secret: string; admission: string }> {
    const secret = random(32);
    return { secret: encode(secret), admission: encode(await sha256(await hkdf(secret, ADMISSION))) };
  }

  /** One whose secret is known. */
  static of(base: string, id: string, secret: string): InviteCode {
    const bytes = decodeExact(secret, 32);
    if (!bytes) throw new SealError("format", "The secret of an invitation has a form that is not known here.");
    return new InviteCode(base.replace(/\/+$/, ""), id, bytes);
  }

  /** The whole address. It is a secret. */
  get address(): string {
    return `${this.base}/join#v1.${this.id}.${encode(this.secret)}`;
  }

  /** Reads the address that `ensemble share add --invite` shows. */
  static fromAddress(address: string): InviteCode {
    const [, base, id, text] = /^(.+)\/join\/?#v1\.([^.]+)\.([^.]+)$/.exec(address.trim()) ?? [];
    const secret = decodeExact(text, 32);
    if (base === undefined || !decodeExact(id, 16) || id === undefined || !secret) {
      throw new SealError("format", "This is not the address of an invitation: https://…/join#v1.… with 22 and 43 characters.");
    }
    return new InviteCode(base, id, secret);
  }

  /** What lets this invitation make an account. */
  async admission(): Promise<Admission> {
    return { id: this.id, admission: encode(await hkdf(this.secret, ADMISSION)) };
  }

  /** The claim of a guest, whose newest list has this version and digest. */
  async claim(guest: Claiming, signer: Signer, name: string): Promise<ClaimInvite> {
    const { version, digest } = guest;
    const text = await this.#text(guest, name);
    return { name, version, digest, mac: encode(await this.#mac(text)), signature: encode(await signer.sign(text)) };
  }

  /** Whether the guest has the secret and the key. That the key is the guest's, the list says. */
  async isGood(claim: InviteClaim): Promise<boolean> {
    const text = await this.#text(claim, claim.name);
    const mac = decodeExact(claim.mac, 32);
    return mac !== undefined && equal(mac, await this.#mac(text)) && (await isSigned(claim.key, text, claim.signature));
  }

  async #text({ userId, account, version, digest }: Claiming, name: string): Promise<Bytes> {
    const lines = ["ensemble-invite-v1", this.base, this.id, userId, account, version, digest, await digestText(name)];
    return utf8(lines.join("\n"));
  }

  async #mac(text: Bytes): Promise<Bytes> {
    const raw = await hkdf(this.secret, "ensemble-invite-claim-v1");
    const key = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    return new Uint8Array(await crypto.subtle.sign("HMAC", key, text));
  }

  /** What the guest opens with `openAnswer`. */
  async sealAnswer(answer: InviteAnswer): Promise<string> {
    const key = await importAes(await hkdf(this.secret, ANSWER));
    return encode(await encrypt(key, utf8(JSON.stringify(answer)), `${ANSWER}\n${this.id}`));
  }

  async openAnswer(sealed: string): Promise<InviteAnswer> {
    const key = await importAes(await hkdf(this.secret, ANSWER));
    const opened = asObject(await decrypt(key, decode(sealed) ?? new Uint8Array(), `${ANSWER}\n${this.id}`));
    const { session, owner, account, version, digest, name } = opened;
    const texts = [session, owner, account, digest, name];
    if (!texts.every((text) => typeof text === "string") || !Number.isInteger(version)) {
      throw new SealError("format", "The answer to the invitation has a form that is not known here.");
    }
    return { session, owner, account, version, digest, name } as InviteAnswer;
  }
}
