// Runs of tasks: what is drawn again.

import assert from "node:assert/strict";
import test from "node:test";
import { Problem } from "@ensemble/client";
import { drawOnce, Draws, signRun } from "@ensemble/client/account";
import { SigningKey } from "@ensemble/client/lists";

test("ids whose refs are taken are drawn three times, and nothing else is tried again", () => {
  const problem = (code: string) => new Problem({ code }, 409, undefined);
  const draws = new Draws();
  assert.deepEqual(
    [1, 2, 3, 4].map(() => draws.mayDrawAgain(problem("CONFLICT"))),
    [true, true, false, false],
  );
  assert.ok(!new Draws().mayDrawAgain(problem("IDEMPOTENCY_MISMATCH")));
  assert.ok(!new Draws().mayDrawAgain(new Error("no connection")));
});

test("a plan that is signed again under other ids is done once by a machine", async () => {
  const signer = await SigningKey.generate();
  const context = { credential: { now: () => Date.now() }, keys: { signer } } as unknown as Parameters<typeof signRun>[0];
  const run = { machineId: "desk", tasks: ["x", "y"].map((prompt) => ({ provider: "claude", prompt, dependsOn: [] })) };
  const once = run.tasks.map(() => drawOnce(context));
  const signed = async (): Promise<{ taskId: string; nonce: string }[]> =>
    (await signRun(context, run, once)).tasks.map(({ signedBody }) => JSON.parse(signedBody ?? ""));
  const [first, second] = [await signed(), await signed()];
  assert.equal(new Set([...first, ...second].map(({ taskId }) => taskId)).size, 4);
  for (const bodies of [first, second])
    assert.deepEqual(
      bodies.map(({ nonce }) => nonce),
      once.map(({ nonce }) => nonce),
    );
  assert.notEqual(once[0]?.nonce, once[1]?.nonce);
});
