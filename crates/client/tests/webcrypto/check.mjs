// Reads vectors from standard input, opens and checks each, and writes its own vectors for the same account and ids to
// standard output. Exits with 1 at the first wrong vector.

import assert from "node:assert/strict";
import * as seal from "./seal.mjs";

let input = "";
for await (const chunk of process.stdin) input += chunk;
const given = JSON.parse(input);

const seed = seal.fromText(given.accountSeed);
const account = await seal.accountKey(seed);
const content = await seal.contentKey(seed);
assert.equal(seal.toText(account.public), given.publicKey);
assert.equal(seal.toText(content.public), given.contentPublicKey);
assert.equal(await seal.fingerprint(given.publicKey), given.fingerprint);

const contentText = `ensemble-content-key-v1\n${given.contentPublicKey}`;
assert.ok(await seal.verify(given.publicKey, given.contentPublicKeySignature, contentText));
const { origin, challenge, signature } = given.signIn;
const signInText = `ensemble-auth-v1\n${origin}\n${given.publicKey}\n${challenge}`;
assert.ok(await seal.verify(given.publicKey, signature, signInText));

const ring = seal.fromText(given.ring);
for (const { aad, blob } of given.sealedRings) {
  assert.deepEqual(await seal.openSignedRing(blob, content, aad), { ring, signer: given.publicKey }, aad);
  await assert.rejects(seal.openSignedRing(blob, content, `${aad}x`), aad);
}
const secret = seal.linkSecret(given.link.fragment);
assert.deepEqual(await seal.openLink(given.link.blob, secret, given.link.aad), ring);
for (const { aad, epoch, plaintext, blob } of given.contents) {
  assert.deepEqual(await seal.openContent(ring, aad, blob), { epoch, plaintext }, aad);
  await assert.rejects(seal.openContent(ring, `${aad}0`, blob), aad);
}

const made = structuredClone(given);
made.contentPublicKeySignature = await seal.sign(account, contentText);
made.signIn.signature = await seal.sign(account, signInText);
for (const sealed of made.sealedRings) {
  sealed.blob = await seal.sealSignedRing(ring, account, content.public, sealed.aad);
}
made.link.blob = await seal.sealLink(ring, secret, made.link.aad);
for (const sealed of made.contents) {
  sealed.blob = await seal.sealContent(ring, sealed.epoch, sealed.aad, sealed.plaintext);
}
process.stdout.write(JSON.stringify(made));
