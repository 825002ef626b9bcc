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
