// The same story in each browser that the page is for: an account, a link to another one, an agent's words, an answer, a prompt.
//
// `crates/cli/tests/stories/page.rs` runs this with one server and one agent for all of them.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { accessible, BROWSERS, pictures } from "../browser.mjs";
import { exists, kept, makeAccount, phase, steps } from "./people.mjs";
import { ensemble, links } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;

/** Signs out in the settings, which wipes the browser. */
async function signOut(page) {
  await page.goto(`${origin}/settings`);
  // What comes late moves what is below it.
  await page.getByText("this browser").first().waitFor();
  await page.getByRole("button", { name: "Sign out here…" }).click();
  await page.getByRole("button", { name: "Wipe this browser" }).click();
  await page.getByRole("button", { name: "Make an account" }).waitFor();
}

describe("the page in three browsers", { timeout: 25 * 60_000 }, () => {
  let session;
  // The last words: what is far above the end is not drawn.
  let said = "from the machine";
  before(async () => {
    await ensemble(["login", "--server", origin]);
    session = await ensemble(["claude", "--title", "Shared", "--dir", "work", "--detach", "[[say from the machine]]"]);
  });
  after(async () => {
    if (session) await ensemble(["stop", session]).catch(() => undefined);
  });

  for (const [name, open] of Object.entries(BROWSERS)) {
    describe(name, () => {
      let me;
      before(async () => {
        me = await open(origin);
      });
      after(() => me?.close());
      const step = steps();

      step("a person makes an account, finds it after a reload, and signs out", async () => {
        const { page, checked } = me;
        await makeAccount(page, origin);
        await page.reload();
        await page.getByRole("heading", { name: "No sessions yet" }).waitFor();
        await accessible(page, `home, empty, ${name}`);
        await signOut(page);
        await checked();
      });

      step("a terminal adds the browser to its account", async () => {
        const { page, checked } = me;
        const { address, finish } = await links();
        await page.goto(address);
        await page.getByRole("button", { name: "Add this browser" }).click();
        await finish(await page.locator(".digits").innerText());
        await page
          .getByRole("main")
          .getByRole("link", { name: /Shared/ })
          .click();
        await page.getByRole("log").getByText(said, { exact: true }).first().waitFor();
        await phase(page, "Ready").waitFor();
        await checked();
      });

      step("what the agent asks is allowed by a click, and a prompt is done", async () => {
        const { page, checked } = me;
        await ensemble(["prompt", session, `[[run touch ${name}]]`]);
        const card = page.getByRole("region", { name: /The agent asks/ });
        await card.waitFor();
        await accessible(page, `request, ${name}`);
        await pictures(page, `three-${name}`);
        await card.getByRole("button", { name: "Allow once" }).click();
        await card.waitFor({ state: "detached" });
        await phase(page, "Ready").waitFor();
        assert.ok(await exists(name));
        said = `seen by ${name}`;
        await page.getByLabel("Prompt").fill(`[[say ${said}]]`);
        await page.getByRole("button", { name: "Send" }).click();
        await page.getByRole("log").getByText(said, { exact: true }).waitFor();
        await page.reload();
        await page.getByRole("log").getByText(said, { exact: true }).waitFor();
        await checked();
      });

      step("signing out leaves nothing behind", async () => {
        const { page, checked } = me;
        await signOut(page);
        await page.reload();
        await page.getByRole("button", { name: "Make an account" }).waitFor();
        assert.deepEqual(await page.evaluate(kept), []);
        await checked();
      });
    });
  }
});
