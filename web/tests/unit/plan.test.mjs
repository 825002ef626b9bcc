// Plans that the command line reads too (`crates/cli/src/plan/draft/tests.rs`).
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { before, describe, test } from "node:test";
import { module } from "./shared.mjs";

describe("the plan reader", () => {
  let readPlan, vectors;
  before(async () => {
    [{ readPlan }, vectors] = await Promise.all([
      module("/src/runs/plan.ts"),
      readFile(new URL("../../../tests/vectors/plan.json", import.meta.url), "utf8").then(JSON.parse),
    ]);
  });
  const read = ({ plan, variables }) =>
    readPlan(plan, { values: variables, files: {}, machines: [{ id: "desk", ref: "desk0000", name: "desk" }] });

  test("plans of the vectors are what they say", () => {
    for (const { name, run, tasks, ...given } of vectors.good) {
      const { body, error } = read(given);
      assert.equal(error, undefined, name);
      const { tasks: found, machineId: _, ...rest } = JSON.parse(JSON.stringify(body));
      assert.deepEqual(rest, run, name);
      for (const { turn } of found) {
        if (!turn) continue;
        assert.equal(turn.machineId, "desk", name);
        delete turn.machineId;
      }
      assert.deepEqual(found, tasks, name);
    }
  });

  test("what is no plan is said to be none", () => {
    for (const { name, ...given } of vectors.bad) assert.notEqual(read(given).error, undefined, name);
  });
});
