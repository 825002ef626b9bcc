// Checks each vector of device lists, content rings, links and recovery words, and makes others for the same keys.

import * as seal from "./seal.mjs";

export async function check(given, assert) {
  const made = structuredClone(given);
  const utf8 = new TextEncoder();
  const sha256 = async (text) => seal.toText(new Uint8Array(await crypto.subtle.digest("SHA-256", utf8.encode(text))));

  // ---- Lists ----

  const [first, second] = [seal.fromText(given.firstSeed), seal.fromText(given.secondSeed)];
  const signer = await seal.accountKey(first);
  for (const [at, list] of given.lists.entries()) {
    assert.ok(await seal.verify(list.signer, list.signature, `ensemble-devices-v1\n${list.body}`));
    assert.equal(await sha256(list.body), given.digests[at]);
    const body = JSON.parse(list.body);
    assert.equal(body.prev, at === 0 ? null : given.digests[at - 1]);
    assert.equal(body.contentPublicKey, given.contentPublicKey);
    made.lists[at].signature = await seal.sign(signer, `ensemble-devices-v1\n${list.body}`);
  }

  // ---- The content ring ----

  const device = await seal.accountKey(second);
  const deviceBox = await seal.deviceBox(second);
  assert.equal(seal.toText(deviceBox.public), given.secondBoxKey);
  const ring = await seal.openRing(given.sealedRing.blob, deviceBox, given.sealedRing.aad);
  assert.equal(seal.toText(ring), given.ring);
  const content = ring.subarray(5, 37);
  assert.equal(seal.toText(content), given.contentSecret);
  assert.equal(seal.toText((await seal.boxKey(content)).public), given.contentPublicKey);
  made.sealedRing.blob = await seal.sealRing(ring, deviceBox.public, given.sealedRing.aad);

  // ---- Linking ----

  const { link } = given;
  const [page, fragment] = link.address.split("#");
  const [version, id, secretText] = fragment.split(".");
  assert.deepEqual([page, version], [`${link.origin}/link`, "v1"]);
  const secret = seal.fromText(secretText);
  for (const asked of ["link", "machineLink"]) {
    const { request, text, digits } = given[asked];
    const { publicKey, boxKey, kind, name, by } = request;
    const lines = ["ensemble-link-v2", link.origin, id, publicKey, boxKey, kind, await sha256(name), by ?? ""];
    assert.equal(lines.join("\n"), text);
    const code = async (purpose) => seal.hmac(await seal.hkdf(secret, purpose), utf8.encode(text));
    assert.equal(seal.toText(await code("ensemble-link-request-v1")), request.mac);
    assert.ok(await seal.verify(publicKey, request.signature, text));
    const number = new DataView((await code("ensemble-link-digits-v1")).buffer).getUint32(0) % 1_000_000;
    assert.equal(String(number).padStart(6, "0"), digits);
    made[asked].request.signature = await seal.sign(device, text);
  }

  const answerKey = await seal.hkdf(secret, "ensemble-link-answer-v1");
  const blob = seal.fromText(link.sealedAnswer);
  const opened = await seal.gcm("decrypt", answerKey, blob.subarray(0, 12), link.answerAad, blob.subarray(12));
  assert.deepEqual(JSON.parse(new TextDecoder().decode(opened)), link.answer);
  assert.equal(link.answerAad, `ensemble-link-answer-v1\n${id}`);
  const nonce = seal.random(12);
  const sealed = await seal.gcm("encrypt", answerKey, nonce, link.answerAad, utf8.encode(JSON.stringify(link.answer)));
  made.link.sealedAnswer = seal.toText(seal.bytes(nonce, sealed));

  // ---- Recovery ----

  const bits = seal.fromText(given.recovery.bits);
  const recovery = await seal.accountKey(await seal.hkdf(bits, "ensemble-recovery-key-v1"));
  assert.equal(seal.toText(recovery.public), given.recovery.publicKey);
  const recoveryBox = await seal.boxKey(await seal.hkdf(bits, "ensemble-recovery-box-v1"));
  assert.equal(seal.toText(recoveryBox.public), given.recovery.boxKey);

  return made;
}
