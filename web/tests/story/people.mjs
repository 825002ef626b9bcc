// What people do at the beginning of every story.
import assert from "node:assert/strict";
import { access } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { person } from "../browser.mjs";
import { ensemble } from "./terminal.mjs";

/** Whether there is a file of this name where the agent works. */
export const exists = (name) =>
  access(join(homedir(), "work", name)).then(
    () => true,
    () => false,
  );

export const phase = (page, word) => page.locator(".phase", { hasText: word });

/** Types the three recovery words that the page asks for. */
export async function typeThree(page, words) {
  await page.getByRole("button", { name: "I have written them down" }).click();
  const next = page.getByRole("button", { name: "Continue" });
  assert.ok(await next.isDisabled(), "not before three of them are typed");
  for (const label of await page.getByText(/^Word \d+$/).allInnerTexts()) {
    await page.getByLabel(label, { exact: true }).fill(words[Number(label.slice(5)) - 1]);
  }
  await next.click();
}

/** Makes an account in the page, and gives its recovery words. */
export async function makeAccount(page, origin) {
  await page.goto(origin);
  await page.getByRole("button", { name: "Make an account" }).click();
  const list = page.getByRole("list", { name: "Recovery words" });
  await list.waitFor();
  const words = await list.getByRole("listitem").allInnerTexts();
  await typeThree(page, words);
  await page.getByRole("heading", { name: "No sessions yet" }).waitFor();
  return words;
}

/** The same, and makes the terminal a device of it. The terminal may reach the server at another address. */
export async function signUp(page, origin, server = origin) {
  const words = await makeAccount(page, origin);
  await ensemble(["login", "--recover", "--server", server], `${words.join(" ")}\n`);
}

/** Another user with an account, in the settings, which have its fingerprint and its id. */
export async function anotherUser(browser, origin) {
  const guest = await person(browser, origin);
  await makeAccount(guest.page, origin);
  await guest.page.goto(`${origin}/settings`);
  await guest.page.getByText("Account id").waitFor();
  const [fingerprint, id] = await guest.page.locator("dd code").allInnerTexts();
  return { ...guest, fingerprint: fingerprint.trim(), id: id.trim() };
}

/** What the page keeps in this browser, as `database: record`. The key for what is kept may be a new one, which opens nothing. */
export const kept = async () => {
  const done = (request) =>
    new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  const found = [];
  for (const { name } of await indexedDB.databases()) {
    const database = await done(indexedDB.open(name));
    for (const store of database.objectStoreNames) {
      const records = await done(database.transaction(store).objectStore(store).getAllKeys());
      found.push(...records.filter((record) => record !== "key").map((record) => `${name}: ${record}`));
    }
    database.close();
  }
  return found;
};

/** The steps of one story. Those after one that has failed fail at once. */
export function steps() {
  let hasFailed = false;
  return (name, run) =>
    test(name, async () => {
      assert.ok(!hasFailed, "an earlier step has failed");
      hasFailed = true;
      await run();
      hasFailed = false;
    });
}
