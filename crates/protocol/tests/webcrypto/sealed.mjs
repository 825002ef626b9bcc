// Opens and checks each vector of rings, shares, links, contents and what is said of a session, and makes others for the same account and
// ids.

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

  const aads = { metadata: `ensemble-session-metadata-v3\n${given.sessionId}`, agentState: `ensemble-agent-state-v1\n${given.sessionId}` };
  const newest = Math.max(...given.contents.map(({ epoch }) => epoch));
  const signedText = (kind, version, epoch, body) => `${aads[kind]}\n${version}\n${epoch}\n${body}`;
  const openSaid = async (kind, { version, body, signer, blob }) => {
    const { epoch, plaintext } = await seal.openContent(ring, `${aads[kind]}\n${newest}`, blob);
    const said = JSON.parse(plaintext);
    assert.deepEqual([epoch, said.v, said.body, said.key], [newest, 1, body, signer]);
    assert.ok(await seal.verify(said.key, said.sig, signedText(kind, version, epoch, said.body)));
    assert.ok(!(await seal.verify(said.key, said.sig, signedText(kind, version + 1, epoch, said.body))));
    return said;
  };
  for (const vector of given.metadata) {
    const { user, machine, key, body } = await openSaid("metadata", vector);
    assert.equal(user, given.userId);
    const part = key === given.publicKey ? { key, body } : machine;
    assert.deepEqual([part.key, part.body], [given.publicKey, vector.ofMachine]);
    if (machine) assert.ok(await seal.verify(machine.key, machine.sig, signedText("metadata", machine.version, machine.epoch, machine.body)));
  }
  await openSaid("agentState", given.agentState);

  const made = structuredClone(given);
  const other = await seal.accountKey(seal.fromText(given.otherSeed));
  const sealSaid = async (kind, said, more = {}) => {
    const signer = said.signer === given.publicKey ? account : other;
    const sig = await seal.sign(signer, signedText(kind, said.version, newest, said.body));
    const plaintext = JSON.stringify({ v: 1, body: said.body, ...more, key: said.signer, sig });
    said.blob = await seal.sealContent(ring, newest, `${aads[kind]}\n${newest}`, plaintext);
    return sig;
  };
  const [first, titled] = made.metadata;
  const { admin } = JSON.parse((await seal.openContent(ring, `${aads.metadata}\n${newest}`, titled.blob)).plaintext);
  const { version, body } = first;
  const sig = await sealSaid("metadata", first, { user: given.userId });
  await sealSaid("metadata", titled, { user: given.userId, admin, machine: { version, epoch: newest, body, key: given.publicKey, sig } });
  await sealSaid("agentState", made.agentState);
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
