// Invitations, against the vector.

import assert from "node:assert/strict";
import test from "node:test";
import { SealError } from "@ensemble/client";
import { SigningKey } from "@ensemble/client/lists";
import { InviteCode } from "@ensemble/client/seal";
import { bytes, vectors } from "./vectors.js";

const given = vectors("crates/protocol/vectors/invites.json");
const code = InviteCode.fromAddress(given.address);

test("a guest claims an invitation as the vector does", async () => {
  assert.equal((await code.admission()).admission, given.admission);
  const { version, digest, name } = given.claim;
  const guest = { userId: given.user, account: given.account, version, digest };
  const signer = await SigningKey.fromSeed(bytes(given.guestSeed));
  assert.deepEqual(await code.claim(guest, signer, name), given.claim);
});

test("an answer opens with its own invitation only", async () => {
  const { session, owner, account, version, digest, name } = given.answer;
  assert.deepEqual(await code.openAnswer(given.sealedAnswer), { session, owner, account, version, digest, name });
  const other = InviteCode.fromAddress(given.address.replace(code.id, "AAAAAAAAAAAAAAAAAAAAAA"));
  await assert.rejects(other.openAnswer(given.sealedAnswer), SealError);
  for (const bad of ["", given.address.replace("/join#", "/link#"), given.address.slice(0, -1), `${given.address}A`]) {
    assert.throws(() => InviteCode.fromAddress(bad), SealError, bad);
  }
});

test("an owner's device checks a claim as the vector does", async () => {
  const signer = await SigningKey.fromSeed(bytes(given.guestSeed));
  const claim = { ...given.claim, userId: given.user, account: given.account, key: signer.publicKey };
  assert.ok(await code.isGood(claim));
  for (const bad of [
    { name: "Eve" },
    { version: 3 },
    { account: given.answer.account },
    { key: given.answer.account },
    { mac: given.admission },
  ]) {
    assert.equal(await code.isGood({ ...claim, ...bad }), false, JSON.stringify(bad));
  }
  const other = InviteCode.of(code.base, code.id, given.admission);
  assert.equal(await other.isGood(claim), false, "another secret");
});

test("what an owner's device makes has the form of the vector", async () => {
  assert.equal(code.address, given.address);
  const { secret, admission } = await InviteCode.newSecret();
  const made = InviteCode.of(`${code.base}/`, code.id, secret);
  assert.deepEqual(InviteCode.fromAddress(made.address), made);
  assert.notEqual(admission, given.admissionDigest);
  const of = InviteCode.of(code.base, code.id, given.address.split(".").at(-1));
  assert.deepEqual(await of.openAnswer(await code.sealAnswer(given.answer)), await code.openAnswer(given.sealedAnswer));
});
