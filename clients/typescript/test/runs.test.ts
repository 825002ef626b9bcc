// Runs of tasks: what is drawn again, and what nothing is ordered about.

import assert from "node:assert/strict";
import test from "node:test";
import { Problem } from "@ensemble/client";
import { doubt, Draws, NOT_CHECKED, NOT_SIGNED, signOrder, takeSigned, type Account } from "@ensemble/client/account";

// JSON of any shape.
type Json = any;

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

test("a task that the server calls a session shows no prompt, and nothing is ordered about it", async () => {
  const session = { id: "t", ref: "r", session: true, title: "harmless", prompt: "harmless", machineId: "m" };
  const run: Json = { id: "run", ref: "ref", title: "harmless", tasks: [session, { ...session, session: undefined }] };
  // No signature is looked at, so no account is asked.
  const account = {} as Account;
  const {
    tasks: [sealed, plain],
  } = await takeSigned(account, "run", run);
  assert.deepEqual([sealed.prompt, doubt(sealed)], [null, NOT_CHECKED]);
  assert.deepEqual([plain.title, plain.prompt, doubt(plain)], [null, null, NOT_SIGNED]);
  await assert.rejects(signOrder(account, sealed, { action: "discard", seen: "s", unseen: true }), /not checked: sealed/);
  await assert.rejects(signOrder(account, plain, { action: "message", text: "x" }), /not signed by your devices/);
});
