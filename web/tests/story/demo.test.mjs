// A person without any agent tries the demo from the page of this computer.
//
// `crates/cli/tests/stories/demo.rs` runs this next to `ensemble up`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, launch, person, pictures } from "../browser.mjs";
import { ensemble, opens } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;

const sessions = async () => JSON.parse(await ensemble(["session", "list", "--json"])).sessions;

async function until(what, holds) {
  const deadline = Date.now() + 60_000;
  while (!(await holds())) assert.ok(Date.now() < deadline, what);
}

test("a demo begins from the page, is answered there, and is deleted when it is left", { timeout: 10 * 60_000 }, async () => {
  const browser = await launch();
  try {
    const { page, checked } = await person(browser, origin);
    const { file, finish } = await opens();
    await page.goto(file);
    await page.getByRole("button", { name: "Add this browser" }).click();
    await finish();
    await page.getByText("is ready, and has no agent yet.").waitFor();
    await accessible(page, "home, no agent");
    await pictures(page, "home-demo");
    await page.getByRole("button", { name: "Try a demo" }).click();
    await page.getByText("This is a demo: a script plays the agent. It is deleted when you leave this page.").waitFor();
    assert.equal(await page.getByRole("button", { name: "Share", exact: true }).count(), 0);
    await page.getByRole("button", { name: "Allow once" }).first().waitFor();
    await accessible(page, "a demo");
    await pictures(page, "demo");
    await page.getByRole("button", { name: "Allow once" }).first().click();
    await page.getByRole("log").getByText("passed: 2 + 3 is 5").first().waitFor();

    // A reload does not leave it for good.
    await page.reload();
    await page.getByRole("log").getByText("passed: 2 + 3 is 5").first().waitFor();
    assert.equal((await sessions()).length, 1);
    await page.getByRole("navigation", { name: "Places" }).getByRole("link", { name: "Home" }).first().click();
    await page.getByRole("heading", { name: "No sessions yet" }).waitFor();
    await until("the demo is deleted", async () => (await sessions()).length === 0);
    checked();
  } finally {
    await browser.close();
  }
});
