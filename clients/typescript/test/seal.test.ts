// Keys, rings, shares, links, contents and tasks: opens what the Rust code has made, and makes the same.

import assert from "node:assert/strict";
import test from "node:test";
import { DeviceCredential } from "@ensemble/client";
import * as lists from "@ensemble/client/lists";
import * as seal from "@ensemble/client/seal";
import { bytes, encode, vectors } from "./vectors.js";

const given = vectors("crates/protocol/vectors/seal.json");
const account = await lists.SigningKey.fromSeed(bytes(given.accountSeed));
const content = await seal.BoxPair.fromSecret(await seal.hkdf(bytes(given.accountSeed), "ensemble-content-key-v1"));
const ring = seal.KeyRing.fromBytes(bytes(given.ring));

const refuses = (kind: string) => (error: unknown) => error instanceof Error && (error as { kind?: string }).kind === kind;

test("keys and fingerprints are those of the vectors", async () => {
  assert.equal(account.publicKey, given.publicKey);
  assert.equal(content.publicKey, given.contentPublicKey);
  assert.equal(await lists.fingerprint(given.publicKey), given.fingerprint);
  assert.ok(DeviceCredential);
  const { origin, challenge, signature } = given.signIn;
  const text = new TextEncoder().encode(`ensemble-auth-v1\n${origin}\n${given.publicKey}\n${challenge}`);
  assert.ok(await lists.isSigned(given.publicKey, text, signature));
  assert.ok(!(await lists.isSigned(given.publicKey, Uint8Array.from(text).fill(1, 0, 1), signature)));
});

test("sealed rings open for their binding only, and are made again", async () => {
  for (const { aad, blob } of given.sealedRings) {
    for (const sealed of [blob, await seal.sealRing(ring, content.publicKey, aad, account)]) {
      const opened = await seal.openRing(sealed, content, aad);
      assert.deepEqual([encode(opened.ring.bytes), opened.signer], [given.ring, given.publicKey]);
      await assert.rejects(seal.openRing(sealed, content, `${aad}x`), refuses("signature"));
    }
  }
});

test("a seal cannot be moved to another reader, and what was opened cannot be sealed again", async () => {
  const sealed = await seal.sealRing(ring, content.publicKey, "aad", account);
  const other = await seal.BoxPair.fromSecret(new Uint8Array(32).fill(7));
  const again = await seal.sealRing(ring, other.publicKey, "aad", await lists.SigningKey.generate());
  // The signature of the first one in front of what another key has sealed.
  const moved = encode(Uint8Array.from([...bytes(sealed).subarray(0, 97), ...bytes(again).subarray(97)]));
  await assert.rejects(seal.openRing(moved, other, "aad"), refuses("signature"));
  for (const at of [0, 1, 33, 97, 129, bytes(sealed).length - 1]) {
    const changed = Uint8Array.from(bytes(sealed));
    changed[at] = (changed[at] ?? 0) ^ 1;
    await assert.rejects(seal.openRing(encode(changed), content, "aad"), `byte ${at}`);
  }
});

test("a state is of one account and one version", async () => {
  const sealed = await seal.sealClientState("{}", content.publicKey, given.publicKey, 3, account);
  const { plaintext, signer } = await seal.openClientState(sealed, content, given.publicKey, 3);
  assert.deepEqual([new TextDecoder().decode(plaintext), signer], ["{}", given.publicKey]);
  await assert.rejects(seal.openClientState(sealed, content, given.publicKey, 4), refuses("signature"));
});

test("a platform that fails to make a key is asked again", async (t) => {
  const { subtle } = globalThis.crypto;
  const make = subtle.generateKey.bind(subtle) as (...of: unknown[]) => Promise<unknown>;
  let calls = 0;
  const failing = (...of: unknown[]) => (++calls % 3 === 0 ? make(...of) : Promise.reject(new Error("OperationError")));
  t.mock.method(subtle, "generateKey", failing as never);
  const sealed = await seal.sealRing(ring, content.publicKey, "aad", account);
  assert.equal(calls, 3);
  assert.equal((await seal.openRing(sealed, content, "aad")).signer, given.publicKey);
  assert.notEqual((await lists.SigningKey.generate()).publicKey, account.publicKey);
  assert.equal(calls, 6);
});

test("shares name who granted them, and open for their recipient", async () => {
  const read = async (text: string, user: string = given.userId) => {
    const shared = seal.SharedRing.fromText(text);
    assert.equal(shared.toText(), text);
    return { shared, signer: await shared.signer(given.sessionId, user, given.publicKey) };
  };
  const own = given.shares.find(({ level }: { level: string }) => level === "admin").blob;
  for (const { blob, machine, level, epoch, contentEpoch, recipientEpoch, signer, admin } of given.shares) {
    const about = { session: given.sessionId, recipient: given.userId, account: given.publicKey };
    const grant = { ...about, machine: machine ?? undefined, level, contentEpoch, recipientEpoch };
    const by = admin ? await seal.SharedRing.fromText(own).asAdmin(given.userId, given.publicKey) : undefined;
    const made = await seal.SharedRing.seal(ring, content.publicKey, grant, account, by);
    for (const text of [blob, made.toText()]) {
      const { shared, signer: found } = await read(text);
      assert.deepEqual([found, shared.level, shared.epoch], [signer, level, epoch]);
      assert.deepEqual([shared.contentEpoch, shared.recipientEpoch], [contentEpoch, recipientEpoch]);
      assert.equal(shared.admin?.user ?? null, admin);
      if (shared.admin) assert.equal(await shared.admin.grantedBy(given.sessionId), signer);
      const opened = await shared.open(content, given.sessionId, given.userId, grant.machine);
      assert.equal(encode(opened.ring.bytes), given.ring);
      assert.equal((await read(text, given.sessionId)).signer, undefined, "another recipient");
      await assert.rejects(shared.open(content, given.userId, given.userId, grant.machine), refuses("refused"));
      await assert.rejects(shared.open(content, given.sessionId, given.userId, "another"), refuses("refused"));
    }
  }
});

test("public links", async () => {
  const secret = seal.LinkSecret.fromFragment(given.link.fragment);
  assert.equal(secret.fragment, given.link.fragment);
  const made = await secret.seal(ring, given.sessionId);
  for (const sealed of [given.link.blob, made]) {
    assert.equal(encode((await secret.open(sealed, given.sessionId)).bytes), given.ring);
    await assert.rejects(secret.open(sealed, given.userId), refuses("refused"));
  }
  const address = secret.address("https://host/prefix/share/TOKEN");
  const { base, token, secret: read } = seal.readShareAddress(address);
  assert.deepEqual([base, token, read.fragment], ["https://host/prefix", "TOKEN", given.link.fragment]);
  for (const bad of ["", "https://host/share/TOKEN", "https://host/share/TOKEN#v2.x", "https://host/share/TOKEN#v1.AAAA"]) {
    assert.throws(() => seal.readShareAddress(bad), refuses("format"), bad);
  }
});

test("contents open with the key of their epoch, for their purpose only", async () => {
  for (const { aad, epoch, plaintext, blob } of given.contents) {
    const [name, of] = aad.split("\n");
    const made = epoch === ring.epoch ? [await seal.sealContent(ring, { name, of }, new TextEncoder().encode(plaintext))] : [];
    for (const sealed of [blob, ...made]) {
      assert.equal(seal.epochOf(sealed), epoch);
      assert.equal(new TextDecoder().decode(await seal.openContent(ring, { name, of }, sealed)), plaintext);
      await assert.rejects(seal.openContent(ring, { name, of: `${of}0` }, sealed), refuses("refused"));
    }
  }
  const old = seal.KeyRing.generate();
  const newer = await seal.sealContent(old.next(), seal.purposes.message("s"), Uint8Array.of(1));
  await assert.rejects(seal.openContent(old, seal.purposes.message("s"), newer), refuses("epoch"));
});

test("what is said of a session is signed for its version and key", async () => {
  const { sessionId: session, userId, otherSeed, metadata, agentState, publicKey } = given;
  const other = await lists.SigningKey.fromSeed(bytes(otherSeed));
  for (const { version, body, signer, ofMachine, isAdmin, blob } of metadata) {
    const read = await seal.openMetadata(ring, session, version, blob);
    const { admin, ofMachine: part } = read;
    const made = await seal.sealMetadata(
      ring,
      session,
      version,
      { body, user: userId, admin, ofMachine: part },
      signer === publicKey ? account : other,
    );
    for (const sealed of [blob, made]) {
      const opened = await seal.openMetadata(ring, session, version, sealed);
      assert.deepEqual([opened.body, opened.key, opened.user, opened.epoch], [body, signer, userId, ring.epoch]);
      assert.equal((await seal.partOf(opened, session, publicKey))?.body, ofMachine);
      assert.equal(await opened.admin?.grantedBy(session), isAdmin ? publicKey : undefined);
      await assert.rejects(seal.openMetadata(ring, session, version + 1, sealed), refuses("signature"));
      await assert.rejects(seal.openMetadata(ring.next(), session, version, sealed), refuses("signature"), "of the key before");
      await assert.rejects(seal.openMetadata(ring, userId, version, sealed), refuses("refused"));
      assert.equal(
        await seal.partOf(opened, userId, publicKey),
        signer === publicKey ? opened.own : undefined,
        "of another session",
      );
    }
  }
  const { version, body, blob } = agentState;
  for (const sealed of [blob, await seal.sealAgentState(ring, session, version, body, account)]) {
    assert.deepEqual(await seal.openAgentState(ring, session, version, sealed, publicKey), JSON.parse(body));
    await assert.rejects(seal.openAgentState(ring, session, version + 1, sealed, publicKey), refuses("signature"));
    await assert.rejects(seal.openAgentState(ring, session, version, sealed, other.publicKey), refuses("signature"));
  }
  // As it was before it was signed.
  const bare = await seal.sealJson(ring, seal.purposes.sessionMetadata(session), { title: "T" });
  await assert.rejects(seal.openMetadata(ring, session, 1, bare), refuses("signature"));
});

test("rings have a bound and begin with epoch 1", () => {
  let long = seal.KeyRing.generate();
  while (long.epoch < 170) long = long.next();
  assert.throws(() => long.next(), refuses("bound"));
  const other = long.bytes;
  other[4] = 2;
  for (const bad of [other, other.subarray(0, 5), other.subarray(0, 36), new Uint8Array()]) {
    assert.throws(() => seal.KeyRing.fromBytes(bad), refuses("format"));
  }
});

test("tasks for a machine", async () => {
  const { deviceSeed, machineSeed, machineBoxKey, owner, machine, body, sealed } = vectors(
    "crates/protocol/vectors/tasks.json",
  );
  const [device, box] = [await lists.SigningKey.fromSeed(bytes(deviceSeed)), await seal.BoxPair.ofSeed(bytes(machineSeed))];
  assert.equal(box.publicKey, machineBoxKey);
  for (const task of [sealed, await seal.sealTask(body, machineBoxKey, owner, machine, device)]) {
    assert.deepEqual(await seal.openTask(task, box, owner, machine), { body, key: device.publicKey });
    await assert.rejects(seal.openTask(task, box, machine, machine), refuses("refused"));
  }
});

test("tasks in the clear", async () => {
  const { deviceSeed, machine, clear } = vectors("crates/protocol/vectors/tasks.json");
  const device = await lists.SigningKey.fromSeed(bytes(deviceSeed));
  for (const [signed, forMachine] of [
    [clear.forMachine, machine],
    [clear.forAny, null],
  ]) {
    assert.deepEqual(await seal.signTask(clear.body, forMachine, device), signed);
    assert.ok(await seal.isSignedTask(signed, machine));
    assert.ok(!(await seal.isSignedTask({ ...signed, signedBody: `${clear.body} ` }, machine)));
  }
  for (const what of ["message", "order"] as const) {
    const signed = clear[what];
    assert.deepEqual(await seal.signTask(signed.signedBody, machine, device, what), signed);
    assert.ok(await seal.isSignedTask(signed, machine, what));
    assert.ok(!(await seal.isSignedTask(signed, machine)) && !(await seal.isSignedTask(clear.forMachine, machine, what)));
    assert.equal(JSON.parse(signed.signedBody).taskDigest, clear.digest);
  }
  assert.equal(await seal.listDigest(clear.list), clear.listDigest);
  assert.equal((await seal.readTask(clear.forAny))?.title, "naïve 🙂");
  assert.equal(await seal.readTask(clear.forMachine), undefined, "its body is for any machine");
  assert.deepEqual(
    seal.outputKeys("{{tasks.b.output}} \\{{tasks.x.output}} {{{tasks.a.output}} {{tasks.b.output}} {{tasks.1.output}}"),
    ["b", "a"],
  );
  assert.ok(!(await seal.isSignedTask(clear.forMachine, "another")));
  assert.ok(await seal.isSignedTask(clear.forAny, "another"));
});

test("keys of small order are refused, and signatures with them", async () => {
  const zero = encode(new Uint8Array(32));
  for (const weak of [
    zero,
    encode(Uint8Array.of(1, ...new Uint8Array(31))),
    encode(Uint8Array.of(...new Uint8Array(31), 0x80)),
  ]) {
    assert.ok(!lists.isSigningKey(weak) && !lists.isBoxKey(weak), weak);
    assert.ok(!(await lists.isSigned(weak, Uint8Array.of(1), encode(new Uint8Array(64)))));
    await assert.rejects(seal.sealTo(weak, Uint8Array.of(1), "x"), refuses("format"));
  }
  assert.ok(lists.isSigningKey(given.publicKey) && lists.isBoxKey(given.contentPublicKey));
  assert.ok(!lists.isSigningKey(`${given.publicKey}=`), "one key has one text");
});
