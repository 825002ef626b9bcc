// When a digit answers a card. A person who types a text must never answer by it.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { module, shown } from "./shared.mjs";

const OPTIONS = [
  { optionId: "yes", name: "Allow once", kind: "allow_once" },
  { optionId: "always", name: "Always allow touch", kind: "allow_always" },
  { optionId: "no", name: "Reject", kind: "reject_once" },
  { optionId: "stop", name: "Reject and stop the turn", kind: "reject_once" },
];
const asks = (requestId, options = OPTIONS) => ({
  type: "permission",
  requestId,
  title: "Run a command",
  detail: "touch a",
  options,
});
/** Waits until it is noticed that all of the card is on the screen. */
const seen = (page) => page.locator(".request footer .primary:enabled").waitFor();
const answered = (page) => page.evaluate(() => globalThis.answered);

/** Lets time pass until buttons that have moved may be pressed. */
async function still(page) {
  do await page.clock.runFor(1_000);
  while ((await page.locator(".request [aria-disabled=true]").count()) > 0);
}

/** The page with time that only a test moves. */
async function standing(bodies) {
  const one = await shown({ bodies }, { reducedMotion: "reduce" });
  const time = Date.parse("2026-11-23T17:02:00Z");
  await one.page.clock.install({ time });
  await one.page.clock.pauseAt(time + 1_000);
  await one.page.reload();
  await one.page.getByRole("region", { name: /The agent asks/ }).waitFor();
  return one;
}

describe("digits", { timeout: 10 * 60_000 }, () => {
  test("each condition has to hold", async () => {
    const { mayCount } = await module("/src/session/digits.ts");
    const good = {
      now: 10_000,
      shownAt: 9_000,
      answeredAt: 9_000,
      typedAt: 8_500,
      isEmpty: true,
      isEndSeen: true,
      isRepeated: false,
      isElsewhere: false,
    };
    assert.equal(mayCount(good), true);
    for (const bad of [
      { shownAt: 9_001 },
      { answeredAt: 9_001 },
      { typedAt: 8_501 },
      { isEmpty: false },
      { isEndSeen: false },
      { isRepeated: true },
      { isElsewhere: true },
    ]) {
      assert.equal(mayCount({ ...good, ...bad }), false, JSON.stringify(bad));
    }
  });

  test("a digit has the same meaning for every request", async () => {
    const { byDigit } = await module("/src/session/digits.ts");
    const { allow, deny, stop, further } = byDigit(OPTIONS);
    assert.deepEqual(
      [allow, deny, stop, ...further].map(({ optionId }) => optionId),
      ["yes", "no", "stop", "always"],
    );
    const few = byDigit([OPTIONS[1], OPTIONS[2]]);
    assert.deepEqual([few.allow, few.deny.optionId, few.stop, few.further.length], [undefined, "no", undefined, 1]);
  });

  test("digits answer a card that has stood, letters never do", async () => {
    const bodies = [asks("r1"), asks("r2"), asks("r3"), asks("r4", [OPTIONS[0], OPTIONS[2]])];
    const { page, context, checked } = await standing(bodies);
    // Too early: it is text, and goes into the composer, as letters do.
    await page.keyboard.press("1");
    await page.clock.runFor(2_000);
    await seen(page);
    const prompt = page.getByLabel("Prompt");
    assert.equal(await prompt.inputValue(), "1");
    await page.keyboard.press("Backspace");
    await page.getByRole("heading", { level: 1 }).click();
    await page.clock.runFor(2_000);
    await page.keyboard.press("y");
    await page.clock.runFor(2_000);
    assert.equal(await prompt.inputValue(), "y");
    await prompt.fill("");
    assert.deepEqual(await answered(page), []);
    for (const [digit, said] of [
      ["2", "r1 no"],
      ["3", "r2 stop"],
      ["1", "r3 yes"],
    ]) {
      await page.evaluate(() => document.activeElement.blur());
      await page.clock.runFor(2_000);
      await page.keyboard.press(digit);
      assert.ok(!(await answered(page)).includes(said), "not before it is known that no other key follows");
      await page.clock.runFor(300);
      assert.equal((await answered(page)).at(-1), said);
      await seen(page);
    }
    // What is not offered does nothing.
    for (const digit of ["3", "4", "9"]) {
      await page.evaluate(() => document.activeElement.blur());
      await page.clock.runFor(2_000);
      await page.keyboard.press(digit);
      await page.clock.runFor(300);
    }
    assert.equal((await answered(page)).length, 3);
    assert.equal(await prompt.inputValue(), "");
    checked();
    await context.close();
  });

  test("a digit with another key after it is text", async () => {
    const { page, context, checked } = await standing([asks("r1")]);
    await page.clock.runFor(2_000);
    for (const key of ["1", "2", " ", "f"]) await page.keyboard.press(key);
    await page.clock.runFor(2_000);
    assert.equal(await page.getByLabel("Prompt").inputValue(), "12 f");
    assert.deepEqual(await answered(page), []);
    checked();
    await context.close();
  });

  test("what reaches further is a list, and is asked once more", async () => {
    const { page, context, checked } = await standing([asks("r1")]);
    await page.clock.runFor(2_000);
    await seen(page);
    await page.keyboard.press("4");
    await page.clock.runFor(300);
    await still(page);
    const focus = (text) => page.waitForFunction((wanted) => document.activeElement.textContent === wanted, text);
    await focus("Always allow touch");
    await page.keyboard.press("ArrowDown");
    await focus("3Reject and stop the turn");
    await page.keyboard.press("ArrowDown");
    // Buttons that have just moved take no key.
    await still(page);
    await page.keyboard.press("Enter");
    await still(page);
    await focus("Enter again: Always allow touch");
    assert.deepEqual(await answered(page), []);
    await page.keyboard.press("Enter");
    assert.deepEqual(await answered(page), ["r1 always"]);
    checked();
    await context.close();
  });
});
