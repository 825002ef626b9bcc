// Machines are shown by name where a person decides about them: when a device is removed, and when an account is recovered.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible } from "../browser.mjs";
import { module, shown } from "./shared.mjs";

const device = (key, name, role, more = {}) => ({ key, name, given: name, kind: "cli", role, current: false, ...more });
const named = async (boxes) =>
  Promise.all(
    (await boxes.all()).map(async (box) => [
      await box.evaluate((one) => document.getElementById(one.getAttribute("aria-labelledby")).textContent),
      await box.evaluate((one) => document.getElementById(one.getAttribute("aria-describedby")).textContent),
      await box.isChecked(),
      await box.isEnabled(),
    ]),
  );

describe("machines", { timeout: 10 * 60_000 }, () => {
  test("the question before a removal names all machines, and those of the computer go with it", async () => {
    const devices = [
      device("me", "Firefox on Linux", "primary", { current: true }),
      device("laptop", "laptop", "linked"),
      device("m1", "desk", "machine", { by: "laptop", ref: "k3j9x2ab" }),
      device("m2", "tower", "machine", { by: "me", ref: "0f2m7q4c" }),
    ];
    const { page, context } = await shown({ devices });
    await page.getByRole("button", { name: "Remove laptop" }).click();
    const question = page.getByRole("group", { name: "Remove laptop?" });
    await question.waitFor();
    const boxes = question.getByRole("checkbox");
    assert.deepEqual(await named(boxes), [
      ["desk", "k3j9x2ab · on its computer", true, false],
      ["tower", "0f2m7q4c", false, true],
    ]);
    await boxes.last().check();
    await boxes.last().uncheck();
    await accessible(page, "the question before a removal");
    await question.getByRole("button", { name: "Cancel" }).click();
    await question.waitFor({ state: "detached" });
    for (const none of ["desk", "tower", "Firefox on Linux"])
      assert.equal(await page.getByRole("button", { name: `Remove ${none}` }).count(), 0, none);
    await page.getByRole("button", { name: "Rename desk" }).click();
    await page.getByLabel("Name of this machine").waitFor();
    await context.close();
  });

  test("recovery shows each machine with its name and its ref, and it goes with its computer", async () => {
    const entry = (key, name, role, more = {}) => ({ key, name, role, hasOtherName: false, ...more });
    const devices = [
      entry("laptopkey-more", "laptop", "primary"),
      entry("m1", "desk", "machine", { by: "laptopkey-more", ref: "k3j9x2ab" }),
      entry("m2", null, "machine", { hasOtherName: true, ref: "0f2m7q4c" }),
    ];
    const { page, context } = await shown({ found: { fingerprint: "1f0a-93c2", devices } });
    const boxes = page.getByRole("checkbox");
    const other = ["0f2m7q4c (the server gives another name)", "machine · 0f2m7q4c", false, true];
    assert.deepEqual(await named(boxes), [
      ["laptop", "primary · laptopke", false, true],
      ["desk", "machine · k3j9x2ab", false, true],
      other,
    ]);
    await boxes.first().check();
    assert.deepEqual(await named(boxes), [
      ["laptop", "primary · laptopke", true, true],
      ["desk", "machine · k3j9x2ab", true, false],
      other,
    ]);
    await context.close();
  });

  test("what a removal has left open is said", async () => {
    const { leftOpen } = await module("/src/data/devices.ts");
    const left = (machines, unsearched) => leftOpen({ unconfirmed: Array(machines).fill({}), unsearched });
    const rights = (where) =>
      `What it has let people do in ${where} was not checked. Machines that know of its removal allow none of that.`;
    assert.deepEqual(left(0, 0), []);
    assert.deepEqual(left(1, 1), ["A machine has not confirmed it: see Home.", rights("a session")]);
    assert.deepEqual(left(2, 12), ["2 machines have not confirmed it: see Home.", rights("12 sessions")]);
  });

  test("a machine is called as the list has it, or what is wrong is said with its ref", async () => {
    const { machineName } = await module("/src/base/words.ts");
    const called = (more) => machineName({ name: null, hasOtherName: false, isListed: true, ref: "k3j9x2ab", ...more });
    assert.deepEqual([{ name: "desk" }, { hasOtherName: true }, {}, { isListed: false }].map(called), [
      "desk",
      "k3j9x2ab (the server gives another name)",
      "Machine k3j9x2ab",
      "k3j9x2ab (not in your list)",
    ]);
  });
});
