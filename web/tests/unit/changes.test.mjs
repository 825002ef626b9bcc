// An order about changes names what was shown of them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { module } from "./shared.mjs";

const file = { path: "a", kind: "modified", added: 1, removed: 0 };
const changes = (more) => ({
  state: "kept",
  files: [file],
  fileCount: 1,
  added: 1,
  removed: 0,
  uncommitted: 0,
  conflicted: [],
  diffTruncated: false,
  ...more,
});
const bytes = (text) => Uint8Array.from(new TextEncoder().encode(text)).buffer;
const diff = bytes("diff --git a/a b/a\n");

test("an order names the diff that was read, also of more files than are listed", async () => {
  const { ShownChanges } = await module("/src/data/shown-changes.ts");
  const { diffDigest, listDigest } = await module("@ensemble/client/seal");
  const shown = new ShownChanges();
  for (const one of [changes(), changes({ fileCount: 300 })]) {
    assert.equal(await shown.seen("other", one, false), await listDigest(one), "only the list is on the screen");
    await shown.saw("t", one, diff);
    assert.equal(await shown.seen("t", one, false), await diffDigest(diff));
    assert.equal(
      await shown.seen("t", { ...one, diffTruncated: true }, true),
      await listDigest(one),
      "a part of the diff is missing",
    );
  }
});

test("what has changed is ordered about only when it was read again, or unseen", async () => {
  const { HasChanged, ShownChanges } = await module("/src/data/shown-changes.ts");
  const { diffDigest, listDigest } = await module("@ensemble/client/seal");
  const [shown, later] = [new ShownChanges(), changes({ added: 2 })];
  await shown.saw("t", changes(), diff);
  for (let clicks = 0; clicks < 3; clicks++) await assert.rejects(shown.seen("t", later, false), HasChanged);
  assert.equal(await shown.seen("t", later, true), await listDigest(later));
  await assert.rejects(shown.seen("t", later, false), HasChanged, "that it was wanted unseen shows nothing");
  const other = bytes("another diff\n");
  await shown.saw("t", later, other);
  assert.equal(await shown.seen("t", later, false), await diffDigest(other));
});
