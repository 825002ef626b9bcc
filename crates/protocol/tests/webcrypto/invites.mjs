// Checks the vector of an invitation, and makes another one with the same secret.

import * as seal from "./seal.mjs";

export async function check(given, assert) {
  const made = structuredClone(given);
  const utf8 = new TextEncoder();
  const sha256 = async (bytes) => seal.toText(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));

  const { address, origin, user, account, claim, text } = given;
  const [page, fragment] = address.split("#");
  const [version, id, secretText] = fragment.split(".");
  assert.deepEqual([page, version], [`${origin}/join`, "v1"]);
  const secret = seal.fromText(secretText);
  const admission = await seal.hkdf(secret, "ensemble-invite-admission-v1");
  assert.equal(seal.toText(admission), given.admission);
  assert.equal(await sha256(admission), given.admissionDigest);

  const name = await sha256(utf8.encode(claim.name));
  const lines = ["ensemble-invite-v1", origin, id, user, account, claim.version, claim.digest, name];
  assert.equal(lines.join("\n"), text);
  const mac = await seal.hmac(await seal.hkdf(secret, "ensemble-invite-claim-v1"), utf8.encode(text));
  assert.equal(seal.toText(mac), claim.mac);
  const guest = await seal.accountKey(seal.fromText(given.guestSeed));
  assert.ok(await seal.verify(seal.toText(guest.public), claim.signature, text));
  made.claim.signature = await seal.sign(guest, text);

  const answerKey = await seal.hkdf(secret, "ensemble-invite-answer-v1");
  const blob = seal.fromText(given.sealedAnswer);
  const opened = await seal.gcm("decrypt", answerKey, blob.subarray(0, 12), given.answerAad, blob.subarray(12));
  assert.deepEqual(JSON.parse(new TextDecoder().decode(opened)), given.answer);
  assert.equal(given.answerAad, `ensemble-invite-answer-v1\n${id}`);
  const nonce = seal.random(12);
  const sealed = await seal.gcm("encrypt", answerKey, nonce, given.answerAad, utf8.encode(JSON.stringify(given.answer)));
  made.sealedAnswer = seal.toText(seal.bytes(nonce, sealed));
  return made;
}
