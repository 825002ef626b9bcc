// Runs of tasks: what is drawn again.

import assert from "node:assert/strict";
import test from "node:test";
import { Problem } from "@ensemble/client";
import { Draws } from "@ensemble/client/account";

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
