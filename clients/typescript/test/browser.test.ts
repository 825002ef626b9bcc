// In a real Chromium: keys that no script can export survive a restart of the browser, and work.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Account, MemoryStore } from "@ensemble/client/account";
import type { StepResult } from "./browser-page.js";
import { openChromium, type Browser } from "./chromium.js";
import { startServer, type Server } from "./server.js";

let server: Server;
let browser: Browser;
before(async () => {
  browser = await openChromium();
  server = await startServer({ env: { CORS_ALLOWED_ORIGINS: browser.origin } });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

test("an account is made in a browser, and is there after a restart", async () => {
  const base = server.url;
  const made = await browser.run<StepResult>("create", { base });
  assert.equal(made.words, 24);
  const opened = await browser.run<StepResult>("open", { base });
  assert.deepEqual(opened, {
    userId: made.userId,
    title: "In a browser",
    texts: ["before the reload", "after the reload"],
    exported: "InvalidAccessError InvalidAccessError",
  });
});

test("records are changed in one step, and a lock has one holder", async () => {
  assert.equal((await browser.run<StepResult>("store", { base: server.url })).userId, "53 1 undefined");
});

test("a browser is linked", async () => {
  const ann = await Account.create({ base: server.url, store: new MemoryStore(), name: "Ann" });
  const linking = await ann.devices.link();
  let approved: Promise<boolean> | undefined;
  const onDigits = (digits: string): void => {
    approved = linking.asked(AbortSignal.timeout(120_000)).then((asking) => asking.approve(digits, "linked"));
  };
  const joined = await browser.run<StepResult>("join", { base: server.url, given: linking.address, onDigits });
  assert.deepEqual([joined, await approved], [{ userId: ann.userId, title: "x" }, true]);
});
