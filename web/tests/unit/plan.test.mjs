// Plans that the command line reads too (`crates/plan/src/draft/tests.rs`).
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
  const desk = { id: "desk", ref: "desk0000", name: "desk" };
  const read = ({ plan, variables }, machines = [desk], hidden = []) =>
    readPlan(plan, { values: variables, files: {}, machines, hidden });

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

  test("a machine is found by its signed name first, and one that the server hides is not replaced", () => {
    const [tower, other] = [
      { id: "m-1", ref: "0f2m7q4c", name: "tower" },
      { ...desk, name: "" },
    ];
    const found = (machineId, machines, hidden) => {
      const task = { key: "a", prompt: "x", provider: "claude", workingDirectory: "/a", ...(machineId && { machineId }) };
      const { body, error } = read(
        { plan: JSON.stringify({ tasks: [{ ...task, session: true }] }), variables: {} },
        machines,
        hidden,
      );
      return error ?? body.tasks[0].turn.machineId;
    };
    for (const named of ["Tower", "m-1", "0f2m7q4c"]) assert.equal(found(named, [other, tower]), "m-1", named);
    // Its id is what another machine is called.
    assert.equal(found("desk", [other, { ...tower, name: "desk" }]), "m-1");
    for (const [shown, hidden, said] of [
      [[other, tower], ["Desk"], "Task a: the server does not show your machine desk. Do not trust it if that stays so."],
      [[tower], [], "Task a: there is no machine desk. Yours are tower (0f2m7q4c)."],
    ])
      assert.equal(found("desk", shown, hidden), said);
    assert.equal(found(undefined, [tower]), "m-1");
    // An id that was found is not taken for a name.
    const task = { prompt: "x", provider: "claude", workingDirectory: "/a" };
    const machines = [
      { ...desk, name: "tower" },
      { ...tower, name: "desk" },
    ];
    const { body } = read({ plan: JSON.stringify({ machineId: "tower", tasks: [task] }), variables: {} }, machines);
    assert.deepEqual([body.machineId, body.tasks[0].machineId], ["desk", "desk"]);
    assert.match(found(undefined, [tower], ["desk"]), /is sealed for one machine. Name it/u, "the other one may be meant");
  });

  test("what is no plan is said to be none", () => {
    for (const { name, ...given } of vectors.bad) assert.notEqual(read(given).error, undefined, name);
  });
});

test("a person who has agreed to one plan is asked about what another one does elsewhere, or without asking", async () => {
  const { stillToAsk } = await module("/src/data/agreed.ts");
  const kept = new Map();
  const known = {
    agreed: async (machine, directory) => kept.get(`${machine} ${directory}`),
    // Of a machine without a key nothing is remembered.
    agree: async (machine, directory, isBypass) => machine !== "keyless" && kept.set(`${machine} ${directory}`, isBypass),
  };
  const work = (machine, isBypass = false) => ({ machine, directory: "/a", isBypass });
  const asked = (agreed, ...all) => stillToAsk(all, agreed, known);
  const laptop = work("laptop");
  assert.deepEqual(await asked([], laptop), [laptop]);
  for (const other of [work("server", true), work("laptop", true)]) assert.deepEqual(await asked([laptop], other), [other]);
  assert.deepEqual(await asked([], laptop), []);
  const keyless = [work("keyless"), work("keyless", true)];
  assert.deepEqual(await asked([keyless[0]], keyless[0]), []);
  assert.deepEqual(await asked([keyless[0]], keyless[1]), [keyless[1]]);
  assert.deepEqual(await asked([keyless[1]], ...keyless), []);
});
