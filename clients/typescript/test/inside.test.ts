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

test("what takes a right away is above all that was given, whatever time a server or a wrong clock names", async () => {
  const { Versions, CLOCKS } = await inside<typeof import("../dist/account/live/versions.js")>("account/live/versions.js");
  const { MemoryStore } = await import("@ensemble/client/account");
  const [noon, hour] = [1_800_000_000_000, 3_600_000];
  type Kept = ConstructorParameters<typeof Versions>[0];
  const session = (): ((here: number, there: number) => InstanceType<typeof Versions>) => {
    const kept: Kept = { store: new MemoryStore() };
    return (here, there) => new Versions(kept, "s", [Math.min(here, there), Math.max(here, there)]);
  };
  const known = (version: number) => ({ user: "u", account: "", may: "prompt" as const, version });

  const at = session();
  assert.equal(await at(noon, noon + 23 * hour).toGive(undefined, undefined), noon, "it counts no later");
  assert.equal(await at(noon, noon).toGive(undefined, undefined), noon + 1);
  for (const there of [noon, noon - 23 * hour, noon + 23 * hour]) {
    assert.ok((await at(noon, there).toTake(undefined)) > noon + 1, String(there));
  }
  assert.equal(await at(noon - hour, noon - hour).toTake(undefined), noon + 2);
  assert.equal(await at(noon - hour, noon - hour).toGive(undefined, undefined), noon + 2);
  assert.equal(await at(noon, noon).toTake(known(noon + hour)), noon + hour + 1);

  // The machine's clock is the server's: it refuses what is more than five minutes ahead of it.
  for (const here of [noon - 24 * hour, noon + 24 * hour]) {
    const versions = session()(here, noon);
    const given = await versions.toGive(undefined, undefined);
    assert.ok(given <= noon);
    const first = await versions.toTake(known(given));
    const taken = first > noon + CLOCKS ? await versions.toTake(known(given), first) : first;
    assert.ok(taken > given && taken <= noon + CLOCKS, String(taken));
  }

  // What is given again is above what is still on its way, unless the machine refuses that.
  const again = session()(noon + hour, noon);
  assert.equal(await again.toGive(undefined, { localId: "a", version: noon + hour }), noon);
  assert.equal(await again.toGive(undefined, { localId: "a", version: noon + 60_000 }), noon + 60_001);
  // Both clocks were ahead, so the machine has refused what was given.
  const ahead = session();
  await ahead(noon + 48 * hour, noon + 48 * hour).toGive(undefined, undefined);
  const refused = await ahead(noon, noon).toTake(known(noon - 1));
  assert.equal(await ahead(noon, noon).toTake(known(noon - 1), refused), noon);
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
