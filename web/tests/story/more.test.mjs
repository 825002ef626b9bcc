// What the other stories leave out: pictures, plans, people without an agent, looks, machines.
//
// `crates/cli/tests/stories/page.rs` runs this as it runs the first one.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { accessible, launch, person, pictures, SOON } from "../browser.mjs";
import { isKept, phase, signUp, steps } from "./people.mjs";
import { ensemble } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;

/** Waits for what a machine shows. On a busy computer a look takes longer than the machine gives it, and a person tries again. */
async function looked(panel, shown) {
  const again = panel.getByRole("button", { name: "Try again" }).first();
  for (const end = Date.now() + SOON; ;) {
    await shown.or(again).first().waitFor();
    if (await shown.isVisible()) return;
    assert.ok(Date.now() < end, "the machine stays busy");
    // It goes away when the machine answers meanwhile.
    await again.click({ timeout: 1_000 }).catch(() => undefined);
  }
}

/** Whether a process has this word among its arguments. One that ends meanwhile has none. */
const runs = (word) =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .some((name) => {
      try {
        return readFileSync(`/proc/${name}/cmdline`, "utf8").split("\0").includes(word);
      } catch {
        return false;
      }
    });

describe("the rest of the page", { timeout: 25 * 60_000 }, () => {
  let browser, me, session, runner;
  before(async () => {
    browser = await launch();
    me = await person(browser, origin);
  });
  after(async () => {
    if (session) await ensemble(["stop", session]).catch(() => undefined);
    runner?.kill();
    await browser?.close();
  });
  const step = steps();

  step("a session is begun", async () => {
    const { page, checked } = me;
    await signUp(page, origin);
    session = await ensemble(["claude", "--title", "The rest", "--dir", "work", "--detach", "[[say ready]]"]);
    await page
      .getByRole("main")
      .getByRole("link", { name: /The rest/ })
      .click();
    await phase(page, "Ready").waitFor();
    checked();
  });

  step("a picture is pasted, made smaller, and sent", async () => {
    const { page, checked } = me;
    const prompt = page.getByLabel("Prompt");
    await prompt.focus();
    // A photograph of 12 megapixels, as noise: nothing compresses worse.
    await page.evaluate(async () => {
      const canvas = new OffscreenCanvas(4_000, 3_000);
      const context = canvas.getContext("2d");
      for (let at = 0; at < 4_000; at++) {
        context.fillStyle = `hsl(${(at * 47) % 360} 80% ${20 + ((at * 13) % 60)}%)`;
        context.fillRect((at * 331) % 4_000, (at * 173) % 3_000, 90, 70);
      }
      const file = new File([await canvas.convertToBlob({ type: "image/png" })], "large.png", { type: "image/png" });
      const clipboardData = new DataTransfer();
      clipboardData.items.add(file);
      document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
    });
    await page.getByRole("img", { name: "Picture 1" }).waitFor();
    await page
      .getByLabel("Files", { exact: true })
      .and(page.locator("input"))
      .setInputFiles({ name: "no.png", mimeType: "image/png", buffer: Buffer.from("no picture") });
    await page.getByText("no.png is not a picture that this browser can read.").waitFor();
    await prompt.fill("[[say seen]]");
    await accessible(page, "a prompt with a picture");
    await pictures(page, "composer-picture");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("log").getByRole("img", { name: "Image 1" }).waitFor();
    const log = (await ensemble(["log", session, "--json"])).split("\n").map((line) => JSON.parse(line).body);
    const { attachments } = log.findLast(({ type }) => type === "prompt");
    assert.equal(attachments.length, 1);
    assert.ok(attachments[0].data.length < 512 * 1_024 && attachments[0].data.length > 1_000, `${attachments[0].data.length}`);
    checked();
  });

  step("a plan is checked while it is written, drawn, and begun", async () => {
    const { page, checked } = me;
    runner = spawn(process.env.ENSEMBLE, ["runner"], { cwd: homedir(), stdio: "ignore" });
    await page.goto(`${origin}/runs`);
    await page.getByRole("main").getByRole("link", { name: "New" }).click();
    await page.getByRole("button", { name: "Start with an example" }).click();
    await page.getByText("2 tasks.").waitFor();
    const plan = page.getByLabel("Plan");
    const begin = page.getByRole("button", { name: "Start run" });
    const asked = page.getByRole("group", { name: "What the plan asks for" });
    for (const [text, said] of [
      ["tasks: [", /Line 1, column/],
      ["tasks: [{key: a, prompt: x, provider: claude, workingDirectory: /, dependsOn: [a]}]", /it depends on itself/],
      ["tasks: [{prompt: x, provider: claude}]", /workingDirectory/],
      ["tasks: [{prompt: x, colour: red}]", /no member `colour`/],
      [
        "tasks: [{prompt: x, provider: claude, workingDirectory: /, permission: ask}]",
        /cannot be answered with the permission ask/,
      ],
      ["tasks: [{prompt: x, provider: claude, workingDirectory: /, machineId: nowhere}]", /there is no machine nowhere/],
      ["tasks: [{session: yes please, prompt: x, provider: claude, workingDirectory: /}]", /`session` is true or false/],
      [
        "tasks: [{session: true, prompt: x, provider: claude, workingDirectory: /, isolation: worktree}]",
        /cannot have isolation/,
      ],
      [
        "tasks: [{key: a, prompt: x, provider: claude, workingDirectory: /}, {session: true, dependsOn: [a], prompt: '{{tasks.a.output}}', provider: claude, workingDirectory: /}]",
        /is sealed because of `session: true`/,
      ],
      ["tasks: [{prompt: '{{vars.a b}}', provider: claude, workingDirectory: /}]", /not the name of a variable/],
      ["tasks: [{prompt: 'do {{ vars.what }}', provider: claude, workingDirectory: /}]", /\{\{vars\.what\}\} has no value/],
      ["tasks: [{prompt: x, promptFile: a.md, provider: claude, workingDirectory: /}]", /both a prompt and a promptFile/],
      ["tasks: [{promptFile: prompts/a.md, provider: claude, workingDirectory: /}]", /cannot open prompts\/a\.md by its name/],
    ]) {
      await plan.fill(text);
      await page.getByText(said).waitFor();
      assert.ok(await begin.isDisabled());
    }
    const work = join(homedir(), "work");
    await plan.fill(
      `title: From the {{vars.place}}\ndefaults: {provider: claude, workingDirectory: ${work}}\ntasks:\n  - {key: one, title: One, prompt: "[[say {{vars.place}} is done]]"}\n  - {key: two, title: Two, dependsOn: [one], promptFile: two.md}\n  - {key: three, title: Three, dependsOn: [two], session: true, prompt: "[[say three is a session]]"}\n`,
    );
    await asked.getByLabel("{{vars.place}}").fill("page");
    await asked
      .getByLabel("two.md")
      .setInputFiles({ name: "two.md", mimeType: "text/markdown", buffer: Buffer.from("[[say two is done]]") });
    await page
      .getByRole("group", { name: /The tasks/ })
      .getByRole("button", { name: /Two/ })
      .waitFor();
    await accessible(page, "a plan");
    await pictures(page, "plan");
    await page.reload();
    // What was typed is still there.
    await page.waitForFunction(() => document.querySelector("textarea")?.value.includes("From the {{vars.place}}"));
    await asked.getByLabel("{{vars.place}}").fill("page");
    await asked
      .getByLabel("two.md")
      .setInputFiles({ name: "two.md", mimeType: "text/markdown", buffer: Buffer.from("[[say two is done]]") });
    const sent = page.waitForRequest(
      (request) => request.url().endsWith("/v1/orchestrator/runs") && request.method() === "POST",
    );
    await begin.click();
    // The task that is a session is for one machine, and this browser has begun nothing there yet.
    await page.getByRole("button", { name: "Start it there" }).click();
    const { title, tasks } = (await sent).postDataJSON();
    assert.equal(title, "From the page");
    assert.deepEqual(
      tasks.map(({ prompt, session: is }) => [prompt, is]),
      [
        ["[[say page is done]]", undefined],
        ["[[say two is done]]", undefined],
        [undefined, true],
      ],
    );
    await page.getByRole("heading", { name: "From the page" }).waitFor();
    await page.getByText("Completed ·").waitFor();
    await page.getByRole("button", { name: /Three/ }).last().click();
    await page.getByRole("link", { name: "Open its session" }).click();
    await page.getByRole("log").getByText("three is a session", { exact: true }).waitFor();
    await ensemble(["stop", new URL(page.url()).pathname.split("/").pop()]);
    checked();
  });

  step("what a task changed in a worktree is shown, applied, continued, and deleted", async () => {
    const { page, checked } = me;
    const project = join(homedir(), "project");
    mkdirSync(project);
    const git = (...words) =>
      execFileSync("git", ["-c", "user.name=p", "-c", "user.email=p@example.com", ...words], { cwd: project });
    git("init", "--quiet", ".");
    writeFileSync(join(project, "note"), "one\n");
    git("add", "--all");
    git("commit", "--quiet", "-m", "first");
    const tasks = [{ title: "Add", prompt: "[[run cp note one.txt]]", permission: "edit" }];
    const plan = {
      title: "In a worktree",
      defaults: { provider: "claude", workingDirectory: project, isolation: "worktree" },
      tasks,
    };
    const run = (await ensemble(["run", "-", "--detach"], JSON.stringify(plan))).split(/\s/)[0];
    await page.goto(`${origin}/runs`);
    await page
      .getByRole("main")
      .getByRole("link", { name: /In a worktree/ })
      .click();
    await page.getByText("Completed ·").waitFor();
    await page.getByRole("button", { name: /Add/ }).click();
    const changes = page.getByRole("region", { name: "Changes" });
    await changes.getByText("1 file, +1 −0, kept in a worktree.").waitFor();
    await changes.getByRole("button", { name: "Show changes" }).click();
    await changes.getByText(/\+\+\+ b\/one\.txt/).waitFor();
    await accessible(page, "changes of a task");
    await pictures(page, "changes-of-a-task");
    assert.ok(!existsSync(join(project, "one.txt")));
    await changes.getByRole("button", { name: "Apply" }).click();
    await changes.getByText("1 file, +1 −0, applied.").waitFor();
    assert.ok(existsSync(join(project, "one.txt")));
    await page.getByLabel("Send its agent another message").fill("[[say continued]]");
    await page.getByRole("button", { name: "Say", exact: true }).click();
    await page.getByText("attempt 2").waitFor();
    await page.getByText("Completed ·").waitFor();
    await page.getByText("continued").first().waitFor();
    await page.getByRole("button", { name: "Delete…" }).click();
    await page.getByText(/Its worktrees are removed/).waitFor();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByRole("heading", { name: "Runs", exact: true }).waitFor();
    assert.ok(!(await ensemble(["runs"])).includes(run));
    checked();
  });

  step("what has changed in the directory of a session is shown, with its files, and put into the composer", async () => {
    const { page, checked } = me;
    const project = join(homedir(), "project");
    writeFileSync(join(project, ".gitignore"), "secret\n");
    writeFileSync(join(project, "secret"), "the word is swordfish\n");
    const begun = await ensemble(["claude", "--title", "Looked at", "--dir", project, "--detach", "[[say ready]]"]);
    writeFileSync(join(project, "note"), "one\ntwo\n");
    await page.goto(`${origin}/sessions/${begun}`);
    await page.getByRole("tab", { name: "Changes" }).click();
    const panel = page.getByRole("tabpanel");
    const look = (shown) => looked(panel, shown);
    await look(panel.getByText("1 file, +1 −0", { exact: true }));
    await panel.getByRole("button", { name: /^note/ }).click();
    const lines = panel.getByRole("group", { name: "Changes of note" });
    await look(lines.getByText("two", { exact: true }));
    await lines.getByText("two", { exact: true }).click();
    const prompt = page.getByLabel("Prompt");
    assert.equal(await prompt.inputValue(), "note:2 ");
    await look(panel.getByText("first", { exact: true }));
    await panel.getByRole("radio", { name: "Not committed" }).check();
    await look(panel.getByRole("button", { name: /^one\.txt/ }));
    await accessible(page, "changes of a session");
    await pictures(page, "changes-of-a-session");
    await prompt.fill("");
    await page.getByRole("tab", { name: "Files" }).click();
    await look(panel.getByRole("button", { name: /^secret/ }));
    await panel.getByRole("button", { name: /^secret/ }).click();
    await panel.getByText("This file is not in git. It may hold secrets.").waitFor();
    await panel.getByRole("button", { name: "Open it" }).click();
    await look(panel.getByText("the word is swordfish"));
    await accessible(page, "a file of a session");
    await pictures(page, "file-of-a-session");
    await page.getByRole("tab", { name: "Chat" }).click();
    await page.getByRole("log").getByText("ready", { exact: true }).waitFor();
    await ensemble(["stop", begun]);
    checked();
  });

  step("without a connection the runs and one of them are as they were, with the time", async () => {
    const { page, context, checked } = me;
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
    await page.goto(`${origin}/runs`);
    const entry = page.getByRole("main").getByRole("link", { name: /From the page/ });
    const since = await page.evaluate(() => new Date().toISOString());
    await entry.click();
    await page.getByText("Completed ·").waitFor();
    const run = page.url();
    // What is shown is kept a moment later, and when the screen is left.
    await page.getByRole("link", { name: "All runs" }).click();
    await entry.waitFor();
    await isKept(page, "run ", since);
    await context.setOffline(true);
    await page.reload();
    await page.getByText(/^Offline copy from/).waitFor();
    await page.getByText(/^No connection to the server/).waitFor();
    await entry.waitFor();
    await accessible(page, "runs without a connection");
    await pictures(page, "offline-runs");
    await page.goto(run);
    await page.getByText(/^Offline copy from/).waitFor();
    await page.getByRole("button", { name: /Three/ }).last().waitFor();
    await page.getByText("Completed ·").waitFor();
    await accessible(page, "a run without a connection");
    await pictures(page, "offline-run");
    await context.setOffline(false);
    await page.getByText(/^Offline copy from/).waitFor({ state: "detached" });
    const left = me.faults.filter((fault) => !/ERR_INTERNET_DISCONNECTED|ERR_NETWORK_CHANGED/.test(fault));
    me.faults.splice(0, me.faults.length, ...left);
    checked();
  });

  step("people write to each other where no agent is", async () => {
    const { page, checked } = me;
    const { session: talk } = JSON.parse(await ensemble(["session", "create", "--title", "Only people", "--json"]));
    await page.goto(`${origin}/sessions/${talk.id}`);
    await page.getByRole("heading", { name: "Only people" }).waitFor();
    await page.getByLabel("Prompt").fill("Plums are ripe");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("log").getByText("Plums are ripe", { exact: true }).waitFor();
    await ensemble(["session", "send", talk.id, "and pears"]);
    await page.getByRole("log").getByText("and pears", { exact: true }).waitFor();
    await accessible(page, "people");
    await pictures(page, "people");
    // A person with a link reads along.
    await page.getByRole("button", { name: "Share" }).click();
    const dialog = page.getByRole("dialog", { name: "Share this session" });
    await dialog.getByRole("button", { name: "Make a link" }).click();
    const address = await dialog.getByLabel("Address", { exact: true }).innerText();
    await page.keyboard.press("Escape");
    const reader = await person(browser, origin);
    await reader.page.goto(address);
    await reader.page.getByRole("log").getByText("and pears", { exact: true }).waitFor();
    await page.getByLabel("Prompt").fill("and figs");
    await page.getByRole("button", { name: "Send" }).click();
    await reader.page.getByRole("log").getByText("and figs", { exact: true }).waitFor();
    reader.checked();
    await reader.context.close();
    checked();
  });

  step("a command that outlives its turn is shown, and ended", async () => {
    const { page, checked } = me;
    // Its length is a name for it.
    const length = String(100_000_000 + process.pid);
    const tool = `[[tool Bash {"command":"sleep ${length}","run_in_background":true,"description":"wait"}]]`;
    const outlived = await ensemble([
      "claude",
      "--title",
      "Outlived",
      "--dir",
      "work",
      "--mode",
      "bypass",
      "--yes",
      "--detach",
      tool,
    ]);
    await page.goto(origin);
    await page
      .getByRole("main")
      .getByRole("link", { name: /Outlived/ })
      .click();
    const left = page.locator(".still-running");
    await left.getByText(/^1 command still runs: /).waitFor();
    assert.ok(runs(length));
    await accessible(page, "a command that outlives its turn");
    await pictures(page, "outlived");
    await left.getByRole("button", { name: "End" }).click();
    await left.waitFor({ state: "detached" });
    assert.ok(!runs(length), "it runs on");
    await ensemble(["stop", outlived]);
    checked();
  });

  step("theme and language of dates are chosen for this browser", async () => {
    const { page, checked } = me;
    await page.goto(`${origin}/settings`);
    await page.getByLabel("Theme").selectOption("dark");
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(await ground(), "rgb(16, 16, 19)");
    await page.getByLabel("Dates").selectOption("ja");
    await page.getByText(/3月9日/).waitFor();
    await page.reload();
    await page.getByText(/3月9日/).waitFor();
    assert.equal(await ground(), "rgb(16, 16, 19)");
    await page.getByLabel("Theme").selectOption("system");
    await page.getByLabel("Dates").selectOption("");
    checked();
  });

  step("a machine is deleted", async () => {
    const { page, checked } = me;
    runner.kill();
    await page.goto(`${origin}/machines`);
    const machine = page.getByRole("main").getByRole("listitem");
    await machine
      .getByRole("button", { name: /^Delete/ })
      .first()
      .click();
    await machine.getByRole("button", { name: "Delete it" }).click();
    await page.getByText(/^Deleted: /).waitFor({ timeout: SOON });
    await page.getByText("No machines yet").waitFor();
    checked();
  });
});
