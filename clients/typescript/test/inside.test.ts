// Parts that the package does not export.

import assert from "node:assert/strict";
import test from "node:test";

type Access = typeof import("../dist/account/machine-access.js");
const inside = async <T>(path: string): Promise<T> => (await import(new URL(`../../dist/${path}`, import.meta.url).href)) as T;

test("a machine that refuses has not been told", async () => {
  const { toldBy } = await inside<Access>("account/machine-access.js");
  const refused = { is: "rejected", code: "stale", text: "A newer one came before." } as const;
  assert.deepEqual([undefined, { is: "not_yet" } as const, { is: "queued" } as const].map(toldBy), [
    undefined,
    undefined,
    undefined,
  ]);
  assert.deepEqual([toldBy({ is: "done" }), toldBy(refused)], ["told", refused]);
});

test("a session that may have begun is begun again as the same", async () => {
  const { Starting } = await inside<typeof import("../dist/account/start.js")>("account/start.js");
  const sent: string[] = [];
  const POST = (_path: string, { params, body }: { params: { header: object }; body: object }): void =>
    void sent.push(JSON.stringify([params.header, body]));
  const client = { http: { POST }, data: () => Promise.reject(new Error("The connection broke.")) };
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
