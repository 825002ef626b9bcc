// What people do at the beginning of every story.
import assert from "node:assert/strict";
import { access } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ensemble } from "./terminal.mjs";

/** Whether there is a file of this name where the agent works. */
export const exists = (name) => access(join(homedir(), "work", name)).then(() => true, () => false);

export const phase = (page, word) => page.locator(".phase", { hasText: word });

/** Types the three recovery words that the page asks for. */
export async function typeThree(page, words) {
  await page.getByRole("button", { name: "I have written them down" }).click();
  const goOn = page.getByRole("button", { name: "Go on" });
  assert.ok(await goOn.isDisabled(), "not before three of them are typed");
  for (const label of await page.getByText(/^Word \d+$/).allInnerTexts()) {
    await page.getByLabel(label, { exact: true }).fill(words[Number(label.slice(5)) - 1]);
  }
  await goOn.click();
}

/** Makes an account in the page, and makes the terminal a device of it. */
export async function signUp(page, origin) {
  await page.goto(origin);
  await page.getByRole("button", { name: "Make an account" }).click();
  const list = page.getByRole("list", { name: "Recovery words" });
  await list.waitFor();
  const words = await list.getByRole("listitem").allInnerTexts();
  await typeThree(page, words);
  await page.getByRole("heading", { name: "No sessions yet" }).waitFor();
  await ensemble(["login", "--recover", "--server", origin], `${words.join(" ")}\n`);
}

/** The steps of one story. Those after one that has failed fail at once. */
export function steps() {
  let hasFailed = false;
  return (name, run) => test(name, async () => {
    assert.ok(!hasFailed, "an earlier step has failed");
    hasFailed = true;
    await run();
    hasFailed = false;
  });
}
