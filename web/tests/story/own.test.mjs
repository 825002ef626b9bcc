// A person makes an account on the page that `ensemble web` serves, at a server that is elsewhere.
//
// `crates/cli/tests/stories/own_page.rs` runs this. PAGE_URL is where `ensemble web` serves, ENSEMBLE_URL the server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { launch, person } from "../browser.mjs";

const [origin, server] = [process.env.PAGE_URL, process.env.ENSEMBLE_URL].map((url) => new URL(url).origin);

test("an account is made at the server, and kept under the server's address", { timeout: 25 * 60_000 }, async () => {
  assert.notEqual(origin, server);
  const browser = await launch();
  try {
    const { page, context, checked } = await person(browser, origin, { server });
    const fromServer = new Set();
    const signedIn = [];
    context.on("request", (request) => {
      const url = new URL(request.url());
      if (url.origin === server) fromServer.add(url.pathname.split("/")[1]);
      if (url.pathname === "/v1/auth" && request.method() === "POST") signedIn.push(request.postDataJSON().origin);
    });
    // What an address says does not choose the server.
    await page.goto(`${origin}/?server=https://evil.example#server=https://evil.example`);
    await page.getByLabel("Name of this device").fill("The test's browser");
    await page.getByRole("button", { name: "Make an account" }).click();
    const list = page.getByRole("list", { name: "Recovery words" });
    await list.waitFor();
    const words = await list.getByRole("listitem").allInnerTexts();
    await page.getByRole("button", { name: "I have written them down" }).click();
    for (const label of await page.getByText(/^Word \d+$/).allInnerTexts()) {
      await page.getByLabel(label, { exact: true }).fill(words[Number(label.slice(5)) - 1]);
    }
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("heading", { name: "No sessions yet" }).waitFor();
    await page.getByText(`ensemble login --link --server ${server}`).waitFor();
    const kept = (await page.evaluate(() => indexedDB.databases())).map(({ name }) => name);
    assert.ok(
      kept.includes(`ensemble ${server}`) && kept.every((name) => name.startsWith(`ensemble ${server}`)),
      `kept: ${kept}`,
    );
    assert.ok(signedIn.length > 0 && signedIn.every((one) => one === server), `sign-ins are for ${signedIn}`);
    assert.deepEqual([...fromServer], ["v1"], "the server gives data and no code");

    // The account is there after a reload, at another place of the app.
    await page.goto(`${origin}/machines`);
    await page.getByRole("heading", { name: "Machines", level: 1 }).waitFor();
    checked();
  } finally {
    await browser.close();
  }
});
