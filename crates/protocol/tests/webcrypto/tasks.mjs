// Opens each sealed task and checks its signature, and makes another for the same keys.

import * as seal from "./seal.mjs";

const INFO = "ensemble-task-sealed-v2";

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
  const signed = [
    ["forMachine", "clear", given.machine],
    ["forAny", "clear", ""],
    ["message", "message", given.machine],
    ["order", "order", given.machine],
  ];
  for (const [name, what, machine] of signed) {
    const { signature, signedBody } = clear[name];
    if (what === "clear") assert.equal(signedBody, clear.body);
    else assert.equal(JSON.parse(signedBody).taskDigest, clear.digest);
    const text = `ensemble-task-${what}-v2\n${machine}\n${signedBody}`;
    assert.equal(signature.key, seal.toText(signer.public));
    assert.ok(await seal.verify(signature.key, signature.sig, text));
    made.clear[name].signature.sig = await seal.sign(signer, text);
  }
  const digest = async (text) => seal.toText(new Uint8Array(await crypto.subtle.digest("SHA-256", utf8.encode(text))));
  assert.equal(await digest(clear.body), clear.digest);
  const { files, fileCount, added, removed } = clear.list;
  const list = [fileCount, added, removed, files.map((file) => [file.path, file.kind, file.added, file.removed])];
  assert.equal(await digest(`ensemble-changes-v1\n${JSON.stringify(list)}`), clear.listDigest);
  return made;
}
