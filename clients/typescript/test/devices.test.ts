// Device lists, content rings, linking and recovery words, against the vectors and against a server that lies.

import assert from "node:assert/strict";
import test from "node:test";
import { Distrust } from "@ensemble/client";
import * as lists from "@ensemble/client/lists";
import * as seal from "@ensemble/client/seal";
import { bytes, encode, vectors } from "./vectors.js";

const given = vectors("crates/protocol/vectors/devices.json");
const first = await lists.SigningKey.fromSeed(bytes(given.firstSeed));
const second = await lists.SigningKey.fromSeed(bytes(given.secondSeed));
const box = await seal.BoxPair.ofSeed(bytes(given.secondSeed));
const [one, two] = given.lists;

test("the lists of the vectors are valid, and only in their order", async () => {
  const list = await lists.List.first(one, first.publicKey);
  const next = await list.next(two);
  assert.deepEqual([list.digest, next.digest], given.digests);
  assert.deepEqual([next.device(second.publicKey)?.role, next.commands(second.publicKey)], ["linked", true]);
  await assert.rejects(lists.List.first(two, first.publicKey), Distrust);
  await assert.rejects(lists.List.first(one, second.publicKey), Distrust);
  await assert.rejects(next.next(two), Distrust);
  await assert.rejects(list.next({ ...two, body: `${two.body} ` }), Distrust);
});

test("a list that breaks a rule is refused", async () => {
  const list = await (await lists.List.first(one, first.publicKey)).next(two);
  const attempt = async (change: (next: lists.DeviceList) => void, signer = first) => {
    const next = list.successor(new Date(0));
    change(next);
    return list.next(await lists.signList(next, signer));
  };
  const other = (await seal.BoxPair.ofSeed(new Uint8Array(32).fill(9))).publicKey;
  const key = (await lists.SigningKey.fromSeed(new Uint8Array(32).fill(8))).publicKey;
  const entry = (role: lists.Role, more = {}): lists.ListedDevice => ({ key, boxKey: other, role, ...more });
  const good: [string, (next: lists.DeviceList) => void][] = [
    ["nothing changes", () => undefined],
    ["a device is added", (next) => next.devices.push(entry("linked"))],
    ["a machine is added", (next) => next.devices.push(entry("machine", { machineId: "m1" }))],
    ["a device has a name", (next) => next.devices.push(entry("linked", { name: given.digests[0] }))],
    ["a device has none", (next) => next.devices.push(entry("linked", { name: null }))],
    [
      "a device is removed with a new epoch",
      (next) => {
        next.devices = next.devices.filter(({ role }) => role !== "linked");
        Object.assign(next, { contentEpoch: 2, contentPublicKey: other });
      },
    ],
  ];
  for (const [what, change] of good) assert.equal((await attempt(change)).version, 3, what);
  const bad: [string, (next: lists.DeviceList) => void, lists.SigningKey?][] = [
    ["signed by a linked device", () => undefined, second],
    ["another account", (next) => (next.account = second.publicKey)],
    ["a version is skipped", (next) => next.version++],
    ["a fork", (next) => (next.prev = given.digests[0])],
    ["removed in the same epoch", (next) => (next.devices = next.devices.filter(({ role }) => role !== "linked"))],
    ["another content key in the same epoch", (next) => (next.contentPublicKey = other)],
    ["the same content key in a new epoch", (next) => next.contentEpoch++],
    ["two epochs", (next) => Object.assign(next, { contentEpoch: 3, contentPublicKey: other })],
    [
      "no device can sign the next",
      (next) => {
        next.devices = next.devices.filter(({ role }) => role === "linked");
        Object.assign(next, { contentEpoch: 2, contentPublicKey: other });
      },
    ],
    ["a key twice", (next) => next.devices.push({ ...entry("linked"), boxKey: box.publicKey })],
    ["a machine without an id", (next) => next.devices.push(entry("machine"))],
    ["two recoveries", (next) => next.devices.push(entry("recovery"))],
    ["a role that is not known", (next) => next.devices.push(entry("king" as lists.Role))],
    ["a weak key", (next) => next.devices.push({ ...entry("linked"), boxKey: encode(new Uint8Array(32)) })],
    ["a name that is no SHA-256", (next) => next.devices.push(entry("linked", { name: "laptop" }))],
    ["a name that is no text", (next) => next.devices.push(entry("linked", { name: 1 }))],
    ["too long", (next) => (next.created = `${" ".repeat(32_768)}2026-01-01`)],
    ["too many", (next) => (next.devices = Array.from({ length: 65 }, () => entry("linked")))],
  ];
  for (const [what, change, signer] of bad) await assert.rejects(attempt(change, signer), Distrust, what);
  for (const body of ["", "[]", "null", "{}", '{"devices":[null]}']) {
    await assert.rejects(lists.List.remembered({ ...two, body }), Distrust, body);
  }
});

test("the content ring opens for its device and its list only", async () => {
  const list = await (await lists.List.first(one, first.publicKey)).next(two);
  const ring = await seal.ContentRing.open(given.sealedRing.blob, box, second.publicKey, list);
  assert.equal(encode(ring.bytes), given.ring);
  assert.equal(await ring.publicKey(), given.contentPublicKey);
  const entry = list.device(second.publicKey);
  assert.ok(entry);
  const again = await seal.ContentRing.open(await ring.sealTo(entry, list.body.account), box, second.publicKey, list);
  assert.equal(encode(again.bytes), given.ring);
  const newer = await ring.next().sealTo(entry, list.body.account);
  await assert.rejects(seal.ContentRing.open(newer, box, second.publicKey, list), Distrust);
  await assert.rejects(seal.ContentRing.open(given.sealedRing.blob, box, first.publicKey, list));
});

test("a link code makes and checks requests and answers", async () => {
  const { link } = given;
  const code = seal.LinkCode.fromAddress(link.address);
  assert.equal(code.address, link.address);
  assert.ok(await code.isGood(link.request));
  assert.equal(await code.digits(link.request), link.digits);
  const { boxKey, name, kind } = link.request;
  assert.deepEqual(await code.request({ signer: second, boxKey, name, kind }), link.request);
  for (const change of [
    { name: "x" },
    { boxKey: second.publicKey },
    { mac: encode(new Uint8Array(32)) },
    { kind: kind === "cli" ? "web" : "cli" },
  ]) {
    assert.ok(!(await code.isGood({ ...link.request, ...change })), JSON.stringify(change));
  }
  assert.deepEqual(await code.openAnswer(link.sealedAnswer), link.answer);
  assert.deepEqual(await code.openAnswer(await code.sealAnswer(link.answer)), link.answer);
  const other = seal.LinkCode.generate(code.base, code.id);
  await assert.rejects(other.openAnswer(link.sealedAnswer));
  for (const bad of ["", "https://x/link", "https://x/link#v1.AA.BB", `${link.address}A`, link.address.replace("v1", "v2")]) {
    assert.throws(() => seal.LinkCode.fromAddress(bad), bad);
  }
});

test("the request of a machine names the device of its computer", async () => {
  const [code, { request, digits }] = [seal.LinkCode.fromAddress(given.link.address), given.machineLink];
  assert.ok(await code.isGood(request));
  assert.equal(await code.digits(request), digits);
  const { boxKey, name, kind, by } = request;
  assert.deepEqual(await code.request({ signer: second, boxKey, name, kind, by }), request);
  for (const other of [undefined, null, "", second.publicKey])
    assert.ok(!(await code.isGood({ ...request, by: other })), other!);
});

test("recovery words are the bits, and a wrong one is named", async () => {
  const { bits, words, publicKey, boxKey } = given.recovery;
  const made = seal.RecoveryWords.fromBits(bytes(bits));
  const text = Array.isArray(words) ? words.join(" ") : words;
  assert.equal((await made.words()).join(" "), text);
  const read = await seal.RecoveryWords.parse(`  ${text.toUpperCase().replaceAll(" ", "\n ")} `);
  assert.equal((await read.key()).publicKey, publicKey);
  assert.equal((await read.boxPair()).publicKey, boxKey);
  const list = text.split(" ");
  await assert.rejects(seal.RecoveryWords.parse(list.slice(1).join(" ")), /23 words/);
  await assert.rejects(seal.RecoveryWords.parse(["ensemblist", ...list.slice(1)].join(" ")), /Word 1 /);
  await assert.rejects(seal.RecoveryWords.parse([list[1], list[0], ...list.slice(2)].join(" ")), /belong together/);
});
