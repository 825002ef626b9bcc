// A person who begins on a phone: the account is made there, the computer is added from there, and its agents are started from there.
//
// `crates/cli/tests/stories/page.rs` runs this as it runs the first one.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { rename } from "node:fs/promises";
import { homedir } from "node:os";
import { after, before, describe } from "node:test";
import { accessible, launch, person, PHONE, pictures, SOON } from "../browser.mjs";
import { exists, phase, steps, typeThree } from "./people.mjs";
import { ensemble } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;
const IPHONE =
  "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1";
const AS_PHONE = {
  userAgent: IPHONE,
  viewport: PHONE,
  hasTouch: true,
  isMobile: true,
  permissions: ["clipboard-read", "clipboard-write"],
};

/** Begins `ensemble login --link` with the address that the phone shows. `digits` are those that it prints; `ended` waits for its end. */
function joins(address) {
  const child = spawn(process.env.ENSEMBLE, ["login", "--link", "--server", origin], { cwd: homedir(), timeout: SOON });
  child.stdin.end(`${address}\n`);
  let said = "";
  const digits = new Promise((resolve) => {
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (piece) => {
        said += piece;
        const found = /\b\d{3} \d{3}\b/.exec(said);
        if (found) resolve(found[0]);
      });
  });
  const ended = new Promise((resolve) => child.on("close", (code) => resolve({ code, said })));
  return { digits: Promise.race([digits, ended.then(({ said }) => assert.fail(said))]), ended };
}

describe("a person who begins on a phone", { timeout: 25 * 60_000 }, () => {
  let browser, me, runner;
  before(async () => {
    browser = await launch();
    me = await person(browser, origin, AS_PHONE);
  });
  after(async () => {
    for (const { id } of JSON.parse(await ensemble(["sessions", "--json"]).catch(() => "{}")).sessions ?? [])
      await ensemble(["stop", id]).catch(() => undefined);
    runner?.kill();
    await browser?.close();
  });
  const step = steps();

  /** Adds the terminal, with or without the right to add devices. */
  async function addTerminal(isPrimary) {
    const { page } = me;
    await page.getByRole("button", { name: "Add a device" }).tap();
    const dialog = page.getByRole("dialog", { name: "Add a device" });
    await dialog.getByText(`ensemble login --link --server ${origin}`).waitFor();
    const terminal = joins(await dialog.getByLabel("Address", { exact: true }).innerText());
    const digits = await terminal.digits;
    await dialog.getByLabel("Six digits").fill(digits);
    const box = dialog.getByRole("checkbox");
    assert.equal(await box.isChecked(), true, "a terminal may add its runner unless the box is cleared");
    await accessible(page, "add a terminal");
    if (!isPrimary) await box.uncheck();
    await dialog.getByRole("button", { name: "Add it" }).tap();
    const { code, said } = await terminal.ended;
    assert.equal(code, 0, said);
    await dialog.waitFor({ state: "detached" });
  }

  step("the account is made, and the words go to a password manager", async () => {
    const { page, checked } = me;
    await page.goto(origin);
    await page.getByRole("button", { name: "Make an account" }).tap();
    const list = page.getByRole("list", { name: "Recovery words" });
    await list.waitFor();
    const words = await list.getByRole("listitem").allInnerTexts();
    const copied = page.getByRole("button", { name: "Copied" });
    await Promise.all([copied.waitFor(), page.getByRole("button", { name: "Copy for a password manager" }).tap()]);
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), words.join(" "));
    await typeThree(page, words);
    await page.getByRole("heading", { name: "No sessions yet" }).waitFor();
    await page.getByText(`ensemble login --link --server ${origin}`).waitFor();
    await accessible(page, "home without a computer");
    checked();
  });

  step("a computer that was added without the right to add devices says so, and is added again", async () => {
    const { page, checked } = me;
    await page.getByRole("link", { name: "Settings, Add a device" }).tap();
    await addTerminal(false);
    await page.getByText("can read, write and approve").waitFor();
    // Apple lets only pages on the home screen notify.
    await page.getByText("Add Ensemble to your home screen first").waitFor();
    const refused = await ensemble(["runner"]).then(
      () => assert.fail("the runner works"),
      ({ message }) => message,
    );
    const [, from, to] = /`mv (\S+) (\S+)`, then `ensemble login --link`/.exec(refused) ?? assert.fail(refused);
    await rename(from, to);
    await page.reload();
    await addTerminal(true);
    checked();
  });

  step("a session is begun on it, in the home of its user", async () => {
    const { page, checked } = me;
    runner = spawn(process.env.ENSEMBLE, ["runner"], { cwd: homedir(), stdio: "ignore" });
    await page.goto(`${origin}/start`);
    await page.getByRole("button", { name: "Start", exact: true }).and(page.locator(":enabled")).waitFor();
    await page.getByLabel("Directory").fill("~/work");
    await page.getByLabel("Agent").selectOption("claude");
    await page.getByLabel("First prompt").fill("[[run touch made-from-a-phone]]");
    await page.getByRole("button", { name: "Start", exact: true }).tap();
    await page.getByRole("button", { name: "Start there" }).tap();
    const card = page.getByRole("region", { name: /The agent asks/ });
    await card.getByRole("button", { name: "Allow once" }).tap();
    await page.getByText("Ready", { exact: true }).waitFor();
    assert.ok(await exists("made-from-a-phone"));
    await accessible(page, "a session on a phone");
    checked();
  });

  step("a person without an account reads it whole", async () => {
    const { page, checked } = me;
    await page.getByRole("button", { name: "Share" }).tap();
    const dialog = page.getByRole("dialog", { name: "Share this session" });
    await dialog.getByRole("button", { name: "Make a link" }).tap();
    const address = await dialog.getByLabel("Address", { exact: true }).innerText();
    await dialog.getByRole("button", { name: "Close" }).tap();
    const reader = await person(browser, origin, AS_PHONE);
    await reader.page.goto(address);
    await reader.page.getByText("allowed by").waitFor();
    assert.equal(
      await reader.page.getByRole("button", { name: "Show earlier messages" }).count(),
      0,
      "there is nothing before",
    );
    await accessible(reader.page, "a shared session on a phone");
    reader.checked();
    await reader.context.close();
    checked();
  });

  step("an open session says that its machine went away, and that it is back", async () => {
    const { page, checked } = me;
    // The agent's host runs on without the runner for a while, so the server's answer of a minute later is given here.
    const row = `${origin}/v1/sessions/${new URL(page.url()).pathname.split("/").pop()}`;
    await page.route(row, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), online: false } });
    });
    const ended = new Promise((resolve) => runner.once("exit", resolve));
    runner.kill("SIGTERM");
    await phase(page, "Machine away").waitFor();
    await pictures(page, "phone-away");
    await ended;
    // A call that is on its way has been answered by then.
    await page.unrouteAll({ behavior: "wait" });
    runner = spawn(process.env.ENSEMBLE, ["runner"], { cwd: homedir(), stdio: "ignore" });
    await phase(page, "Machine away").waitFor({ state: "detached" });
    checked();
  });

  step("the start of a session is no run of the list, and the machine says what it misses", async () => {
    const { page, checked } = me;
    await page.goto(`${origin}/runs`);
    await page.getByRole("heading", { name: "No runs yet" }).waitFor();
    runner.kill("SIGTERM");
    await page.goto(`${origin}/machines`);
    await page.getByText("ensemble runner install").waitFor();
    await accessible(page, "a machine without a runner");
    checked();
  });
});
