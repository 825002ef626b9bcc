// The whole page without a pointer: an account, a session that is begun here, a permission, a link and a person to share with, machines.
//
// `crates/cli/tests/stories/page.rs` runs this as it runs the first one.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { homedir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { accessible, launch, person, pictures } from "../browser.mjs";
import { focused, jump, press, tabTo, write } from "./keys.mjs";
import { anotherUser, exists, phase, steps } from "./people.mjs";
import { ensemble } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;

describe("everything by keys alone", { timeout: 25 * 60_000 }, () => {
  let browser, me, runner, address;
  before(async () => {
    browser = await launch();
    me = await person(browser, origin);
  });
  after(async () => {
    for (const { id } of JSON.parse(await ensemble(["sessions", "--json"]).catch(() => "{}")).sessions ?? [])
      await ensemble(["stop", id]).catch(() => undefined);
    runner?.kill();
    await browser?.close();
  });
  const step = steps();

  step("an account is made, and its words are written down", async () => {
    const { page, checked } = me;
    await page.goto(origin);
    await page.getByRole("heading", { name: "Your coding agents, from anywhere" }).waitFor();
    await write(page, /^Name of this device$/, "Keys alone");
    await press(page, "button", /Make an account/);
    const list = page.getByRole("list", { name: "Recovery words" });
    await list.waitFor();
    const words = await list.getByRole("listitem").allInnerTexts();
    await press(page, "button", /I have written them down/);
    for (const label of await page.getByText(/^Word \d+$/).allInnerTexts()) {
      await write(page, new RegExp(`^${label}$`), words[Number(label.slice(5)) - 1]);
    }
    await press(page, "button", /Continue/);
    await page.getByRole("heading", { name: "No sessions yet" }).waitFor();
    await ensemble(["login", "--recover", "--server", origin], `${words.join(" ")}\n`);
    checked();
  });

  step("a session is begun on a machine", async () => {
    const { page, checked } = me;
    runner = spawn(process.env.ENSEMBLE, ["runner"], { cwd: homedir(), stdio: "ignore" });
    await jump(page, "New session");
    await page.getByRole("heading", { name: "New session" }).waitFor();
    // The runner says which agents it has.
    await page.getByRole("button", { name: "Start", exact: true }).and(page.locator(":enabled")).waitFor();
    await accessible(page, "new session");
    await press(page, "button", /^Start$/);
    // The browser says what is missing, and leads there.
    assert.equal(await page.evaluate(() => document.activeElement.matches(":invalid")), true);
    assert.equal((await focused(page)).name, "Directory");
    await page.keyboard.type(join(homedir(), "work"));
    await write(page, /First prompt/, "[[say begun by keys]]");
    await press(page, "button", /^Start$/);
    await press(page, "button", /^Start there$/);
    await page.getByRole("log", { name: "What was said" }).getByText("begun by keys", { exact: true }).waitFor();
    await phase(page, "Ready").waitFor();
    checked();
  });

  step("a prompt is written, and what the agent asks is allowed", async () => {
    const { page, checked } = me;
    await tabTo(page, "textbox", /^Prompt/);
    await page.keyboard.type("[[run touch keys]]");
    await page.keyboard.press("Enter");
    await page.getByRole("region", { name: /The agent asks/ }).waitFor();
    await press(page, "button", /^(Yes|Allow)/);
    await page
      .getByRole("log")
      .getByText(/allowed by you/)
      .first()
      .waitFor();
    await phase(page, "Ready").waitFor();
    assert.ok(await exists("keys"));
    // A screen reader goes by headings from what a person said to what the agent did.
    const headings = await page.getByRole("log").getByRole("heading").allInnerTexts();
    assert.deepEqual(headings, ["You", "The agent", "You", "The agent"]);
    checked();
  });

  step("its title is changed", async () => {
    const { page, checked } = me;
    await press(page, "button", /^Details/);
    await page.getByRole("dialog", { name: "Session" }).waitFor();
    await write(page, /Title/, "By keys");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "By keys" }).waitFor();
    checked();
  });

  step("a link is made and opened by another user, who reads along; the focus stays in the dialog and returns", async () => {
    const { page, checked } = me;
    await press(page, "button", /^Share/);
    const dialog = page.getByRole("dialog", { name: "Share this session" });
    await dialog.waitFor();
    await press(page, "button", /^Make a link/);
    address = await dialog.getByLabel("Address", { exact: true }).innerText();
    for (let count = 0; count < 20; count++) {
      await page.keyboard.press("Tab");
      assert.ok(
        await dialog.evaluate(
          (element) => element.contains(document.activeElement) || document.activeElement === document.body,
        ),
        "the focus left the dialog",
      );
    }
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.match((await focused(page)).name, /^Share/);
    const reader = await person(browser, origin);
    await reader.page.goto(address);
    await reader.page.getByRole("log").getByText("begun by keys", { exact: true }).waitFor();
    reader.checked();
    await reader.context.close();
    checked();
  });

  step("a person is added by their account id, after a look at the fingerprint, and removed", async () => {
    const { page, checked } = me;
    const guest = await anotherUser(browser, origin);
    await press(page, "button", /^Share/);
    const dialog = page.getByRole("dialog", { name: "Share this session" });
    await write(page, /Account id of the person/, "unknown");
    await press(page, "button", /^Add/);
    await dialog.getByRole("alert").getByText("An account id looks like").waitFor();
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Control+a");
    await page.keyboard.type(guest.id);
    await page.keyboard.press("Enter");
    await dialog.getByText("Their fingerprint is").waitFor();
    await press(page, "button", /Fingerprints match/);
    await dialog.getByRole("button", { name: "Remove" }).waitFor();
    await guest.page.goto(origin);
    await guest.page
      .getByRole("main")
      .getByRole("link", { name: /By keys/ })
      .waitFor();
    await press(page, "button", /^Remove/);
    await dialog.getByRole("button", { name: "Remove" }).waitFor({ state: "detached" });
    await guest.page
      .getByRole("main")
      .getByRole("link", { name: /By keys/ })
      .waitFor({ state: "detached" });
    await page.keyboard.press("Escape");
    guest.checked();
    await guest.context.close();
    checked();
  });

  step("a machine is looked at, and kept", async () => {
    const { page, checked } = me;
    await jump(page, "Machines");
    await page.getByRole("heading", { name: "Machines" }).waitFor();
    await page
      .getByRole("button", { name: /^Delete/ })
      .first()
      .waitFor();
    await press(page, "button", /^Delete/);
    await page.getByText("You can still read its sessions.").waitFor();
    await accessible(page, "deleting a machine");
    await pictures(page, "machine-delete");
    await press(page, "button", /^Cancel/);
    await page.getByText("You can still read its sessions.").waitFor({ state: "detached" });
    checked();
  });
});
