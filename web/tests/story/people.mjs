// What people do at the beginning of every story.
import assert from "node:assert/strict";
import { access } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { person, shown, SOON } from "../browser.mjs";
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

/** Waits until the page has kept a record whose name begins so, after a time. */
export async function isKept(page, name, after = "") {
  // A function that `waitForFunction` polls must not be async: it takes the promise for a true value.
  const found = () =>
    page.evaluate(
      async ([wanted, since]) => {
        const db = await new Promise((resolve) => {
          const request = indexedDB.open(`ensemble ${location.origin} kept`);
          request.onsuccess = () => resolve(request.result);
        });
        const index = await new Promise((resolve) => {
          const request = db.transaction("records").objectStore("records").get("index");
          request.onsuccess = () => resolve(request.result ?? []);
        });
        db.close();
        return index.some(({ name: found, at }) => found.startsWith(wanted) && at > since);
      },
      [name, after],
    );
  await until(found, Boolean);
}

/** Waits until it gives a matching value. */
export async function until(give, isRight) {
  const end = Date.now() + SOON;
  for (;;) {
    const got = await give();
    if (isRight(got)) return got;
    assert.ok(Date.now() < end, `it stays ${JSON.stringify(got)}`);
    await new Promise((later) => setTimeout(later, 200));
  }
}

/** The steps of one story. Those after one that has failed fail at once. */
export function steps() {
  let hasFailed = false;
  return (name, run) =>
    test(name, async () => {
      assert.ok(!hasFailed, "an earlier step has failed");
      hasFailed = true;
      try {
        await run();
      } catch (error) {
        throw new Error(`${error.message}\n${await shown()}`, { cause: error });
      }
      hasFailed = false;
    });
}
