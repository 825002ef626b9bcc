// What a machine says that it can do, against the vector.

import assert from "node:assert/strict";
import test from "node:test";
import { SealError } from "@ensemble/client";
import { SigningKey } from "@ensemble/client/lists";
import { BoxPair, hkdf, openDaemonState } from "@ensemble/client/seal";
import { bytes, vectors } from "./vectors.js";

const given = vectors("crates/protocol/vectors/daemon-state.json");
const account = await BoxPair.fromSecret(await hkdf(bytes(given.accountSeed), "ensemble-content-key-v1"));
const { publicKey } = await SigningKey.fromSeed(bytes(given.machineSeed));

test("a state opens as the vector does", async () => {
  const opened = await openDaemonState(given.sealed, account, [given.machine, given.version], publicKey);
  assert.deepEqual(opened, given.state);
});

test("it counts for its machine, version and signer only", async () => {
  const other = await SigningKey.generate();
  for (const [of, key] of [
    [["laptop_2", given.version], publicKey],
    [[given.machine, given.version + 1], publicKey],
    [[given.machine, given.version], other.publicKey],
  ] as const) {
    await assert.rejects(openDaemonState(given.sealed, account, of, key), SealError);
  }
});
