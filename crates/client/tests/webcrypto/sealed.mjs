// Opens and checks each vector of rings, shares, links and contents, and makes others for the same account and ids.

import * as seal from "./seal.mjs";

export async function check(given, assert) {
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
  for (const { blob, machine, ...share } of given.shares) {
    const open = (session) => seal.openShare(blob, content, session, given.userId, given.publicKey, machine);
    assert.deepEqual(await open(given.sessionId), { ring, ...share });
    await assert.rejects(open(given.userId));
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
  const own = given.shares.find(({ level }) => level === "admin").blob;
  for (const share of made.shares) {
    const grant = { session: given.sessionId, user: given.userId, account: given.publicKey, ...share };
    share.blob = await seal.sealShare(ring, account, content.public, grant, share.admin ? own : null);
  }
  made.link.blob = await seal.sealLink(ring, secret, made.link.aad);
  for (const sealed of made.contents) {
    sealed.blob = await seal.sealContent(ring, sealed.epoch, sealed.aad, sealed.plaintext);
  }
  return made;
}
