// Opens each sealed task and checks its signature, and makes another for the same keys.

import * as seal from "./seal.mjs";

const INFO = "ensemble-task-v1";

export async function check(given, assert) {
  const made = structuredClone(given);
  const utf8 = new TextEncoder();
  const signer = await seal.accountKey(seal.fromText(given.deviceSeed));
  const box = await seal.deviceBox(seal.fromText(given.machineSeed));
  assert.equal(seal.toText(box.public), given.machineBoxKey);
  assert.equal(given.aad, `${INFO}\n${given.owner}\n${given.machine}`);

  const opened = await seal.openRing(given.sealed, box, given.aad, INFO);
  const { body, key, sig } = JSON.parse(new TextDecoder().decode(opened));
  assert.equal(body, given.body);
  assert.equal(key, seal.toText(signer.public));
  const text = `${INFO}\n${given.machine}\n${body}`;
  assert.ok(await seal.verify(key, sig, text));
  await assert.rejects(seal.openRing(given.sealed, box, given.aad));

  const again = JSON.stringify({ body, key, sig: await seal.sign(signer, text) });
  made.sealed = await seal.sealRing(utf8.encode(again), box.public, given.aad, INFO);

  // In the clear. Ed25519 gives one signature for one text.
  const { clear } = given;
  for (const [name, machine] of [["forMachine", given.machine], ["forAny", ""]]) {
    const signed = `${INFO}\n${machine}\n${clear.body}`;
    assert.equal(clear[name].signedBody, clear.body);
    assert.equal(clear[name].signature.key, seal.toText(signer.public));
    assert.ok(await seal.verify(clear[name].signature.key, clear[name].signature.sig, signed));
    made.clear[name].signature.sig = await seal.sign(signer, signed);
  }
  return made;
}
