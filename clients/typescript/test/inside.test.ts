// Parts that the package does not export.

import assert from "node:assert/strict";
import test from "node:test";

type Access = typeof import("../dist/account/live/access.js");
const inside = async <T>(path: string): Promise<T> => (await import(new URL(`../../dist/${path}`, import.meta.url).href)) as T;

test("a machine that refuses has not confirmed", async () => {
  const { receiptOf } = await inside<Access>("account/live/access.js");
  const refused = { is: "rejected", code: "stale", text: "A newer one came before." } as const;
  assert.deepEqual([undefined, { is: "not_yet" } as const, { is: "queued" } as const].map(receiptOf), [
    undefined,
    undefined,
    undefined,
  ]);
  assert.deepEqual([receiptOf({ is: "done" }), receiptOf(refused)], ["confirmed", refused]);
});

test("a session that may have begun is begun again under the same id", async () => {
  const { Starting } = await inside<typeof import("../dist/account/sessions/start.js")>("account/sessions/start.js");
  const sent: string[] = [];
  const call = (_method: string, _path: string, { header, body }: { header: object; body: object }): Promise<never> => {
    sent.push(JSON.stringify([header, body]));
    return Promise.reject(new Error("The connection broke."));
  };
  const client = { call };
  const start = { machineId: "m", directory: "/w", provider: "claude" };
  // Its constructor is private to the package's types only.
  const starting = Reflect.construct(Starting, [
    { client, userId: "u" },
    start,
    "s",
    "sealed",
    { runId: "r", taskId: "t" },
  ]) as { begin(): Promise<unknown> };
  for (let tries = 0; tries < 2; tries++) await assert.rejects(starting.begin(), /broke/);
  assert.equal(sent.length, 2);
  assert.match(sent[0] ?? "", /"Idempotency-Key":"[^"]{8,}"/);
  assert.equal(sent[0], sent[1]);
});
