// A session's ring for another person: sealed to them, and granted by a signature that the owner's clients can check too.

import { concat, decode, decodeExact, encode, readU32, sha256, u32, utf8, uuidBytes, uuidText, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import { isSigned, type Signer } from "../ed25519.js";
import { openRaw, sealRaw, type BoxPair } from "../hpke.js";
import { KeyRing } from "./ring.js";
import { bindings, type SignedRing } from "./signed-ring.js";
import type { components } from "../../openapi.js";

export type ShareLevel = components["schemas"]["ShareLevel"];

/** Who gets a session, and with which level. */
export interface Grant {
  session: string;
  /** Their user id. */
  recipient: string;
  /** Their account key. */
  account: string;
  level: ShareLevel;
  /** Of the owner's newest device list that the signer knows. */
  contentEpoch: number;
  /** Of the recipient's list to whose content key the ring is sealed. */
  recipientEpoch: number;
}

const VERSION = 3;
const LEVELS: readonly ShareLevel[] = ["view", "edit", "admin"];
/** `level (1) | epoch (4) | content epoch (4) | recipient's content epoch (4) | signer (32) | signature (64)`. */
const GRANT_BYTES = 109;
const ADMIN_BYTES = 16 + 32 + 32 + GRANT_BYTES;

/** The signature of a grant, with what it is about. */
interface Granted {
  level: ShareLevel;
  epoch: number;
  contentEpoch: number;
  recipientEpoch: number;
  signer: string;
  signature: string;
}

/** The admin who shares a session, with the grant that they have themselves. */
export class Admin {
  constructor(
    readonly user: string,
    readonly account: string,
    readonly digest: Bytes,
    readonly granted: Granted,
  ) {}

  /** Reads the output of `toText`. */
  static fromText(text: string): Admin {
    const bytes = decode(text);
    if (bytes?.length !== ADMIN_BYTES) throw unknown();
    return Admin.fromBytes(bytes);
  }

  static fromBytes(bytes: Uint8Array): Admin {
    const [user, account, digest] = [uuidText(bytes.subarray(0, 16)), encode(bytes.subarray(16, 48)), bytes.slice(48, 80)];
    return new Admin(user, account, digest as Bytes, readGrant(bytes.subarray(80)));
  }

  /** `user id (16) | account key (32) | digest (32) | grant (109)`. */
  get bytes(): Bytes {
    const [user, account] = [uuidBytes(this.user), decodeExact(this.account, 32)];
    if (!user || !account) throw unknown();
    return concat(user, account, this.digest, writeGrant(this.granted));
  }

  /** As they show it with what they have signed. */
  toText(): string {
    return encode(this.bytes);
  }

  /** The epoch in which they were made one. */
  get epoch(): number {
    return this.granted.epoch;
  }

  /** The key of the device that made them an admin of this session, if its signature is good. */
  async grantedBy(session: string): Promise<string | undefined> {
    if (this.granted.level !== "admin") return undefined;
    return checked(this.granted, { session, recipient: this.user, account: this.account }, "owner", this.digest);
  }
}

/** A ring for a recipient, as it is stored in a share. */
export class SharedRing {
  private constructor(
    private readonly granted: Granted,
    /** The admin who granted it. Undefined: a device of the owner did. */
    readonly admin: Admin | undefined,
    private readonly sealed: Bytes,
  ) {}

  /** Seals a ring to the content key of a person; of a session that a machine hosts, with that machine. Signed by a device of the owner,
   * or of the admin. */
  static async seal(
    ring: KeyRing,
    to: string,
    { machine, ...grant }: Grant & { machine?: string | undefined },
    signer: Signer,
    admin?: Admin,
  ): Promise<SharedRing> {
    const sealed = await sealRaw(to, ring.bytes, bindings.share(grant.session, grant.recipient, machine));
    const { level, contentEpoch, recipientEpoch } = grant;
    const said = { level, epoch: ring.epoch, contentEpoch, recipientEpoch };
    const text = grantText(grant, said, form(admin), await sha256(sealed));
    const signature = encode(await signer.sign(text));
    return new SharedRing({ ...said, signer: signer.publicKey, signature }, admin, sealed);
  }

  static fromText(text: string): SharedRing {
    const bytes = decode(text);
    if (!bytes || bytes[0] !== VERSION || bytes.length < 2 + GRANT_BYTES) throw unknown();
    const granted = readGrant(bytes.subarray(1));
    const [by, rest] = [bytes[1 + GRANT_BYTES], bytes.slice(2 + GRANT_BYTES)];
    if (by === 0) return new SharedRing(granted, undefined, rest);
    if (by !== 1 || rest.length < ADMIN_BYTES) throw unknown();
    return new SharedRing(granted, Admin.fromBytes(rest.subarray(0, ADMIN_BYTES)), rest.slice(ADMIN_BYTES));
  }

  toText(): string {
    const { admin } = this;
    const head = concat(Uint8Array.of(VERSION), writeGrant(this.granted));
    if (!admin) return encode(concat(head, Uint8Array.of(0), this.sealed));
    return encode(concat(head, Uint8Array.of(1), admin.bytes, this.sealed));
  }

  /** The key of the device that granted it, if its signature is good for this session, recipient and account. */
  async signer(session: string, recipient: string, account: string): Promise<string | undefined> {
    return checked(this.granted, { session, recipient, account }, form(this.admin), await sha256(this.sealed));
  }

  get level(): ShareLevel {
    return this.granted.level;
  }

  /** The epoch of the newest key in the ring. */
  get epoch(): number {
    return this.granted.epoch;
  }

  /** The content epoch of the owner's newest list that the signer knew. */
  get contentEpoch(): number {
    return this.granted.contentEpoch;
  }

  /** The content epoch of the recipient's list to whose key it is sealed. */
  get recipientEpoch(): number {
    return this.granted.recipientEpoch;
  }

  /** What its recipient shows to share the session in turn. They must be its admin. */
  async asAdmin(user: string, account: string): Promise<Admin> {
    return new Admin(user, account, await sha256(this.sealed), this.granted);
  }

  /** Opens the ring; of a session that a machine hosts, with that machine. Its signer is who says that they granted it: `signer` checks
   * that. */
  async open(pair: BoxPair, session: string, recipient: string, machine?: string): Promise<SignedRing> {
    const ring = KeyRing.fromBytes(await openRaw(pair, this.sealed, bindings.share(session, recipient, machine)));
    if (ring.epoch !== this.granted.epoch) throw new SealError("signature", "It is not signed by who made it.");
    return { ring, signer: this.granted.signer };
  }
}

const unknown = (): SealError => new SealError("format", "The share has a form that is not known to this version.");
const form = (admin: Admin | undefined): string => (admin ? "admin" : "owner");

function writeGrant({ level, epoch, contentEpoch, recipientEpoch, signer, signature }: Granted): Bytes {
  const [key, sig] = [decodeExact(signer, 32), decodeExact(signature, 64)];
  if (!key || !sig) throw unknown();
  return concat(Uint8Array.of(LEVELS.indexOf(level)), u32(epoch), u32(contentEpoch), u32(recipientEpoch), key, sig);
}

function readGrant(bytes: Uint8Array): Granted {
  const level = LEVELS[bytes[0] ?? 255];
  if (!level) throw unknown();
  const [signer, signature] = [encode(bytes.subarray(13, 45)), encode(bytes.subarray(45, GRANT_BYTES))];
  return {
    level,
    epoch: readU32(bytes, 1),
    contentEpoch: readU32(bytes, 5),
    recipientEpoch: readU32(bytes, 9),
    signer,
    signature,
  };
}

type About = Pick<Grant, "session" | "recipient" | "account">;
type Said = Pick<Granted, "level" | "epoch" | "contentEpoch" | "recipientEpoch">;

function grantText({ session, recipient, account }: About, said: Said, by: string, digest: Bytes): Bytes {
  const { level, epoch, contentEpoch, recipientEpoch } = said;
  return utf8(
    ["ensemble-share-v2", session, recipient, account, level, by, epoch, contentEpoch, recipientEpoch, encode(digest)].join(
      "\n",
    ),
  );
}

async function checked(granted: Granted, about: About, by: string, digest: Bytes): Promise<string | undefined> {
  const isGood = await isSigned(granted.signer, grantText(about, granted, by, digest), granted.signature);
  return isGood ? granted.signer : undefined;
}
