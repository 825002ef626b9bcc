// An owner whose page is open lets people in who have an invitation: one that was made in a terminal which is gone, and one of the page.
//
// `crates/cli/tests/stories/invited.rs` runs this.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, describe } from "node:test";
import { homedir } from "node:os";
import { accessible, launch, person, pictures, SOON } from "../browser.mjs";
import { steps } from "./people.mjs";
import { ensemble, opens } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;

/** `ensemble share add --invite`: the address that it shows. Then the person presses Ctrl-C. */
async function invited(session, level) {
  const words = ["share", "add", session, "--invite", "--level", level];
  const child = spawn(process.env.ENSEMBLE, words, { cwd: homedir(), timeout: SOON });
  let said = "";
  const ended = new Promise((resolve) => child.on("close", resolve));
  const address = await new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (piece) => {
        said += piece;
        const found = /(https?:\S+\/join#\S+)\s/.exec(said);
        if (found) resolve(found[1]);
      });
    ended.then(() => reject(new Error(said)));
  });
  child.kill("SIGINT");
  assert.equal(await ended, 0, said);
  assert.match(said, /It is answered when one of your devices is open/);
  return address;
}

async function join(browser, address, name) {
  const guest = await person(browser, origin);
  await guest.page.goto(address);
  await guest.page.getByLabel("Your name").fill(name);
  await guest.page.getByRole("button", { name: "Join", exact: true }).click();
  return guest;
}

describe("the owner's page", { timeout: 20 * 60_000 }, () => {
  let browser, me, session, id;
  before(async () => {
    await ensemble(["login", "--server", origin, "--name", "Anna"]);
    const made = JSON.parse(await ensemble(["session", "create", "--title", "Plans", "--json"])).session;
    [session, id] = [made.ref, made.id];
    await ensemble(["session", "send", session, "Hello, all"]);
    browser = await launch();
    me = await person(browser, origin);
    const { file, finish } = await opens();
    await me.page.goto(file);
    await me.page.getByRole("button", { name: "Add this browser" }).click();
    await me.page.getByRole("main").getByRole("link", { name: /Plans/ }).waitFor();
    await finish();
  });
  after(() => browser?.close());
  const step = steps();

  step("the terminal is gone, and the page lets in who is to write", async () => {
    const { page } = me;
    const guest = await join(browser, await invited(session, "edit"), "Bob");
    await guest.page.getByRole("heading", { name: "Waiting for an answer" }).waitFor();
    await page.getByText("Bob (joined by your link) wants to write to Plans").waitFor();
    await accessible(page, "someone wants to join");
    await pictures(page, "someone wants to join");
    assert.deepEqual(JSON.parse(await ensemble(["share", "list", session, "--json"])).shares, []);
    await page.getByRole("button", { name: "Let them in" }).click();
    // It is shown for some seconds.
    await page.getByText("Bob has joined.").waitFor();
    await guest.page.getByText("Hello, all").waitFor();
    const { shares, invites } = JSON.parse(await ensemble(["share", "list", session, "--json"]));
    assert.deepEqual([shares.length, shares[0].accessLevel], [1, "edit"]);
    assert.deepEqual([invites[0].state, invites[0].name], ["answered", "Bob"]);
    await guest.checked();
  });

  step("who is refused has nothing", async () => {
    const { page } = me;
    const guest = await join(browser, await invited(session, "edit"), "Eve");
    await page.getByText("Eve (joined by your link) wants to write to Plans").waitFor();
    await page.getByRole("button", { name: "Refuse" }).click();
    await guest.page.getByRole("alert").getByText("has ended the invitation").waitFor();
    assert.equal(JSON.parse(await ensemble(["share", "list", session, "--json"])).shares.length, 1);
  });

  step("a reader who was invited in the page joins by itself, and is removed", async () => {
    const { page, checked } = me;
    await page.goto(`${origin}/sessions/${id}`);
    await page
      .getByRole("button", { name: /^Share/ })
      .first()
      .click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Read and prompt: Bob has joined.").waitFor();
    await dialog.getByRole("button", { name: "Invite", exact: true }).click();
    const address = (await dialog.getByLabel("Address", { exact: true }).first().innerText()).trim();
    await dialog.getByText("Read: waiting, until").waitFor();
    await accessible(page, "an invitation in the page");
    await pictures(page, "an invitation in the page");
    const guest = await join(browser, address, "Cat");
    await guest.page.getByText("Hello, all").waitFor();
    await dialog.getByText("Read: Cat has joined.").waitFor();
    const remove = dialog.getByRole("listitem").filter({ hasText: "Cat" }).getByRole("button", { name: "Remove" });
    await remove.click();
    await remove.waitFor({ state: "detached" });
    assert.equal(JSON.parse(await ensemble(["share", "list", session, "--json"])).shares.length, 1);
    await page.keyboard.press("Escape");
    await checked();
    await guest.checked();
  });

  step("the line that says who has joined removes them", async () => {
    const { page, checked } = me;
    await join(browser, await invited(session, "view"), "Dan");
    await page.locator(".toast", { hasText: "Dan has joined." }).getByRole("button", { name: "Remove" }).click();
    await page.getByText("Dan was removed.").waitFor();
    assert.equal(JSON.parse(await ensemble(["share", "list", session, "--json"])).shares.length, 1);
    await checked();
  });

  step("an invitation is ended in the page", async () => {
    const { page, checked } = me;
    const address = await invited(session, "view");
    await page
      .getByRole("button", { name: /^Share/ })
      .first()
      .click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("listitem").filter({ hasText: "Read: waiting" }).getByRole("button", { name: "End" }).click();
    await dialog.getByText("Read: waiting").waitFor({ state: "detached" });
    const late = await join(browser, address, "Eve");
    await late.page.getByRole("alert").waitFor();
    assert.equal(JSON.parse(await ensemble(["share", "list", session, "--json"])).shares.length, 1);
    await checked();
  });
});
