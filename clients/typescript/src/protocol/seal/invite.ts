// An invitation: its id, and a secret that no server sees.

import { decode, decodeExact, digestText, encode, utf8, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import type { Signer } from "../ed25519.js";
import { hkdf } from "../hpke.js";
import { asObject, decrypt, importAes } from "./ring.js";
import type { components } from "../../openapi.js";

export type ClaimInvite = components["schemas"]["ClaimInvite"];
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
}

const ANSWER = "ensemble-invite-answer-v1";

/** `<address>/join#v1.<id>.<secret>`. */
export class InviteCode {
  private constructor(
    /** The address of the server. */
    readonly base: string,
    readonly id: string,
    private readonly secret: Bytes,
  ) {}

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
    return { id: this.id, admission: encode(await hkdf(this.secret, "ensemble-invite-admission-v1")) };
  }

  /** The claim of a guest, whose newest list has this version and digest. */
  async claim(
    guest: { userId: string; account: string; version: number; digest: string },
    signer: Signer,
    name: string,
  ): Promise<ClaimInvite> {
    const { userId, account, version, digest } = guest;
    const lines = ["ensemble-invite-v1", this.base, this.id, userId, account, version, digest, await digestText(name)];
    const text = utf8(lines.join("\n"));
    const raw = await hkdf(this.secret, "ensemble-invite-claim-v1");
    const key = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const mac = encode(new Uint8Array(await crypto.subtle.sign("HMAC", key, text)));
    return { name, version, digest, mac, signature: encode(await signer.sign(text)) };
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
