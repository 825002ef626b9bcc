// Reads the vectors from standard input, checks each signature and digest with WebCrypto, signs each body again, and writes
// the same document to standard output. Exits with 1 at the first wrong one.

import assert from "node:assert/strict";

const { subtle } = globalThis.crypto;
const bytes = (text) => new TextEncoder().encode(text);
const toText = (buffer) => Buffer.from(buffer).toString("base64url");
const fromText = (text) => new Uint8Array(Buffer.from(text, "base64url"));

// A private key of 32 bytes in PKCS 8 (RFC 8410, section 7).
const privateKey = (seed) => {
  const head = Buffer.from("302e020100300506032b657004220420", "hex");
  return subtle.importKey("pkcs8", Buffer.concat([head, fromText(seed)]), "Ed25519", false, ["sign"]);
};
const publicKey = (key) => subtle.importKey("raw", fromText(key), "Ed25519", false, ["verify"]);
const signedText = (session, user, body) => bytes(`ensemble-message-v2\n${session}\n${user}\n${body}`);

let input = "";
for await (const chunk of process.stdin) input += chunk;
const given = JSON.parse(input);
const [host, device] = [await privateKey(given.hostSeed), await privateKey(given.deviceSeed)];

const made = structuredClone(given);
for (const vector of made.messages) {
  const { body, user, key, sig } = vector.signed;
  const check = async (session, text) =>
    subtle.verify("Ed25519", await publicKey(key), fromText(sig), signedText(session, user, text));
  assert.ok(await check(given.sessionId, body), vector.type);
  assert.ok(!(await check(given.otherSessionId, body)), vector.type);
  assert.ok(!(await check(given.sessionId, `${body} `)), vector.type);

  const message = JSON.parse(body);
  assert.equal(message.v, 1);
  assert.equal(message.type, vector.type);
  const isHost = Number.isInteger(message.n);
  assert.equal(isHost, !["prompt", "answer", "control"].includes(vector.type));

  vector.digest = toText(await subtle.digest("SHA-256", bytes(body)));
  const text = signedText(given.sessionId, user, body);
  vector.signed.sig = toText(await subtle.sign("Ed25519", isHost ? host : device, text));
}
process.stdout.write(JSON.stringify(made));
