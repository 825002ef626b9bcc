// A signed message: it names its author and cannot be changed. Device lists say whether the key may speak for the user.

import { digestText, encode, fromUtf8, utf8, utf8Length, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import { isSigned, type Signer } from "../ed25519.js";
import { MOST_BODY } from "./body.js";

/** The bytes of a signed message: what fits into 1 MiB of base64url with the 33 bytes of the seal. */
const MOST_SIGNED = (2 ** 20 / 4) * 3 - 33;

/** What is sealed as the content of a message. */
export interface Envelope {
  /** A body as JSON. Signature and digest are over its bytes. */
  readonly body: string;
  /** The user id of the signer. */
  readonly user: string;
  readonly key: string;
  readonly sig: string;
}

const signedText = (session: string, user: string, body: string): Bytes =>
  utf8(`ensemble-message-v2\n${session}\n${user}\n${body}`);

/** Signs a body for one session. The bytes are for `sealContent`. */
export async function signBody(session: string, user: string, body: string, signer: Signer): Promise<Bytes> {
  const sig = encode(await signer.sign(signedText(session, user, body)));
  const written = utf8(JSON.stringify({ v: 1, body, user, key: signer.publicKey, sig }));
  if (utf8Length(body) > MOST_BODY || written.length > MOST_SIGNED) {
    throw new SealError("bound", "The message is too long. Shorten it, or leave attachments out.");
  }
  return written;
}

/** Reads what was opened and checks its signature for this session. A text says why it is not taken for a signed message. */
export async function openEnvelope(session: string, opened: Bytes): Promise<Envelope | string> {
  if (opened.length > MOST_SIGNED) return `it has ${opened.length} bytes, which is too long`;
  let given: Record<string, unknown>;
  try {
    given = JSON.parse(fromUtf8(opened)) as Record<string, unknown>;
  } catch {
    return "it is not signed";
  }
  const { v, body, user, key, sig } = given ?? {};
  const isForm = v === 1 && [body, user, key, sig].every((one) => typeof one === "string");
  if (!isForm) return "it is not signed";
  const envelope = { body, user, key, sig } as { body: string; user: string; key: string; sig: string };
  if (utf8Length(envelope.body) > MOST_BODY) return "its body is too long";
  const isGood = await isSigned(envelope.key, signedText(session, envelope.user, envelope.body), envelope.sig);
  return isGood ? envelope : "its signature is not good for this session";
}

/** SHA-256 of a body, as `answer.digest` has it. */
export const bodyDigest = (body: string): Promise<string> => digestText(body);
