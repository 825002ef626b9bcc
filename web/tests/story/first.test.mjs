// A person makes an account in the page, a terminal joins it, and its agent is watched, answered and steered from the page.
//
// `crates/cli/tests/stories/page.rs` runs this with a server, the real agents and the stand-in of the model. ENSEMBLE is the program,
// ENSEMBLE_URL the server; the environment is that of the person's terminal.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { homedir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { accessible, launch, person, PHONE, pictures } from "../browser.mjs";
import { anotherUser, exists, kept, phase, steps, typeThree } from "./people.mjs";
import { ensemble } from "./terminal.mjs";

const origin = new URL(process.env.ENSEMBLE_URL).origin;

describe("the page and a terminal of one account", { timeout: 25 * 60_000 }, () => {
  let browser, me, second, session, written, runner;
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

  step("a person makes an account, and writes the words down", async () => {
    const { page, checked } = me;
    await page.goto(origin);
    await page.getByRole("heading", { name: "Your coding agents, from anywhere" }).waitFor();
    await accessible(page, "welcome");
    await pictures(page, "welcome");
    await page.getByLabel("Name of this device").fill("The test's browser");
    await page.getByLabel("Your name").fill("Ada");
    await page.getByRole("button", { name: "Make an account" }).click();
    const list = page.getByRole("list", { name: "Recovery words" });
    await list.waitFor();
    const words = await list.getByRole("listitem").allInnerTexts();
    assert.equal(words.length, 24);
    await accessible(page, "words");
    await pictures(page, "words");
    await typeThree(page, words);
    await page.getByRole("heading", { name: "No sessions yet" }).waitFor();
    await accessible(page, "home, empty");
    await pictures(page, "home-empty");
    checked();
    written = words;
    // The terminal becomes a device of the account by its words.
    await ensemble(["login", "--recover", "--server", origin], `${words.join(" ")}\n`);
  });

  step("a session that a terminal starts appears at once, with what its agent says", async () => {
    const { page, checked } = me;
    session = await ensemble([
      "claude",
      "--title",
      "Say it",
      "--dir",
      "work",
      "--detach",
      "Say it. [[say Grüße **aus** der Sitzung]]",
    ]);
    const entry = page.getByRole("main").getByRole("link", { name: /Say it/ });
    await entry.waitFor();
    await entry.click();
    await page.getByRole("heading", { name: "Say it" }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Say it", "the focus is lost");
    const log = page.getByRole("log");
    await log.getByText("Grüße aus der Sitzung").waitFor();
    assert.equal(await log.locator("strong", { hasText: "aus" }).count(), 1, "Markdown is drawn");
    await phase(page, "Ready").waitFor();
    checked();
  });

  step("what the agent asks is answered on the page, and done on the disk", async () => {
    const { page, checked } = me;
    await page.getByLabel("Prompt").fill("[[run touch allowed]]");
    await page.getByRole("button", { name: "Send" }).click();
    const card = page.getByRole("region", { name: /The agent asks/ });
    await card.waitFor();
    await card.getByText("touch allowed").first().waitFor();
    assert.equal(await exists("allowed"), false);
    await accessible(page, "session with a request");
    await pictures(page, "session-request");
    await card
      .getByRole("button", { name: /^(Yes|Allow)/ })
      .first()
      .click();
    await card.waitFor({ state: "detached" });
    await phase(page, "Ready").waitFor();
    assert.ok(await exists("allowed"));
    assert.equal(await page.evaluate(() => document.activeElement.localName), "textarea", "the focus is lost");
    await page
      .getByRole("log")
      .getByText(/allowed by you/)
      .waitFor();
    await accessible(page, "session");
    await pictures(page, "session");
    checked();
  });

  step("text streams while it is written, more is queued, and the turn is interrupted", async () => {
    const { page, checked } = me;
    const prompt = page.getByLabel("Prompt");
    await prompt.fill("[[hang]]");
    await prompt.press("Enter");
    await phase(page, "Working").waitFor();
    await prompt.fill("[[say after it]]");
    await prompt.press("Enter");
    await page.getByText("waits for its turn").waitFor();
    await prompt.fill("[[say never]]");
    await prompt.press("Enter");
    await page.getByRole("button", { name: "Edit" }).nth(1).click();
    await page.getByRole("log").getByText("taken back").waitFor();
    await page.getByRole("button", { name: "Edit" }).nth(1).waitFor({ state: "detached" });
    assert.equal(await prompt.inputValue(), "[[say never]]", "its text can be written again");
    await prompt.fill("still being typed");
    await page.getByRole("button", { name: "Interrupt" }).click();
    await page.getByRole("log").getByText("Interrupted").waitFor();
    await page.getByRole("log").getByText("after it", { exact: true }).waitFor();
    assert.equal(await prompt.inputValue(), "still being typed");
    assert.equal(await page.getByRole("log").getByText("never", { exact: true }).count(), 0, "it was done all the same");
    await prompt.fill("");
    const said = await page.getByRole("log").innerText();
    assert.ok(
      said.indexOf("Interrupted") < said.indexOf("[[say after it]]"),
      "a prompt that waited stands before the turn that it waited for",
    );
    checked();
  });

  step("on a phone the request stands on the first screen, and is denied there", async () => {
    const { context } = me;
    const phone = await context.newPage();
    await phone.setViewportSize(PHONE);
    await phone.goto(origin);
    await ensemble(["prompt", session, "[[run touch denied]]"]);
    const card = phone.getByRole("region", { name: /The agent asks/ });
    await card.waitFor();
    await phone.getByRole("heading", { name: "Needs you" }).waitFor();
    await accessible(phone, "home with a request");
    await pictures(phone, "home-needs");
    // As long as a finger or a hand presses: the button gets the focus meanwhile, and must not move.
    await card
      .getByRole("button", { name: /^(No|Deny|Reject)/ })
      .first()
      .click({ delay: 200 });
    await card.waitFor({ state: "detached" });
    await me.page
      .getByRole("log")
      .getByText(/denied by you/)
      .waitFor();
    assert.equal(await exists("denied"), false);
    await phone.close();
    me.checked();
  });

  step("an answer in the terminal closes the card on the page", async () => {
    const { page, checked } = me;
    await page.getByLabel("Prompt").fill("[[run touch terminal]]");
    await page.getByRole("button", { name: "Send" }).click();
    const card = page.getByRole("region", { name: /The agent asks/ });
    await card.waitFor();
    const log = (await ensemble(["log", session, "--json"])).split("\n").map((line) => JSON.parse(line).body);
    const { requestId } = log.findLast((body) => body.type === "permission");
    await ensemble(["answer", session, "allow", "--request", requestId]);
    await card.waitFor({ state: "detached" });
    checked();
  });

  step("what people write does nothing but show", async () => {
    const { page, checked } = me;
    await ensemble([
      "prompt",
      session,
      "<img src=x onerror=alert(1)> \u202Eexe.gpj [[say <b>bold</b> [x](javascript:alert(1)) ![y](https://evil.example/z.png)]]",
    ]);
    await page.getByRole("log").getByText("<b>bold</b>").first().waitFor();
    assert.equal(await page.locator("a[href^=javascript], img[src*=evil], b").count(), 0);
    checked();
  });

  step("the session is renamed, archived, and taken back", async () => {
    const { page, checked } = me;
    await page.getByRole("button", { name: "Details" }).click();
    const dialog = page.getByRole("dialog", { name: "Session" });
    await dialog.getByLabel("Title").fill("Another title");
    await accessible(page, "details");
    await pictures(page, "details");
    await dialog.getByRole("button", { name: "Rename" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("heading", { name: "Another title" }).waitFor();
    await page.getByRole("button", { name: "Details" }).click();
    const undo = page.getByRole("button", { name: "Undo" });
    // It stays as long as the pointer is on it.
    await Promise.all([undo.hover(), dialog.getByRole("button", { name: "Archive" }).click()]);
    await page.getByText("Every session is archived.").waitFor();
    await undo.click();
    const entry = page.getByRole("main").getByRole("link", { name: /Another title/ });
    await entry.waitFor();
    await pictures(page, "home");
    await entry.click();
    await page.getByRole("heading", { name: "Another title" }).waitFor();
    checked();
  });

  step("another user gets it, reads it, and then may write", async () => {
    const { page, checked } = me;
    const guest = await anotherUser(browser, origin);
    await guest.page.getByLabel("Your name").fill("Gast \u202E<b>");
    await guest.page.getByRole("button", { name: "Save" }).click();
    await guest.page.getByText("Saved").waitFor();
    const { fingerprint, id } = guest;

    await page.getByRole("button", { name: "Share" }).click();
    const dialog = page.getByRole("dialog", { name: "Share this session" });
    await dialog.getByLabel("Account id of the person").fill(id);
    await dialog.getByRole("radio", { name: "Read and prompt", exact: true }).check();
    await dialog.getByRole("button", { name: "Add…" }).click();
    await dialog.getByText(fingerprint).waitFor();
    await accessible(page, "share");
    await pictures(page, "share");
    await dialog.getByRole("button", { name: "Fingerprints match: share" }).click();
    await dialog.getByText("The machine has confirmed it.").waitFor();

    await guest.page.goto(origin);
    await guest.page
      .getByRole("main")
      .getByText(/from Ada/)
      .waitFor();
    await guest.page
      .getByRole("main")
      .getByRole("link", { name: /Another title/ })
      .click();
    await guest.page.getByRole("log").getByText("after it", { exact: true }).waitFor();
    await guest.page.getByLabel("Prompt").fill("[[run touch guest]]");
    await guest.page.getByRole("button", { name: "Send" }).click();
    const theirs = guest.page.getByRole("region", { name: /The agent asks/ });
    await theirs.getByText(/Only the owner/).waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    await page
      .getByRole("region", { name: /The agent asks/ })
      .getByRole("button", { name: "Allow once" })
      .click();
    await theirs.waitFor({ state: "detached" });
    await phase(page, "Ready").waitFor();
    assert.ok(await exists("guest"));

    await page.getByRole("button", { name: "Share" }).click();
    await dialog.getByRole("button", { name: "Remove" }).click();
    await dialog.getByText("The machine has confirmed it.").waitFor();
    await page.keyboard.press("Escape");
    guest.checked();
    await guest.context.close();
    checked();
  });

  step("a public link shows it to a person without an account, live", async () => {
    const { page, checked } = me;
    await page.getByRole("button", { name: "Share" }).click();
    const dialog = page.getByRole("dialog", { name: "Share this session" });
    await dialog.getByText("No link opens this session.").waitFor();
    assert.equal(await dialog.getByRole("button", { name: "End the link" }).count(), 0, "there is none to end");
    await dialog.getByLabel("Opens").selectOption({ label: "once" });
    await dialog.getByRole("button", { name: "Make a link" }).click();
    const address = await dialog.getByLabel("Address", { exact: true }).innerText();
    await dialog.getByRole("img", { name: "The address as a code" }).waitFor();
    await pictures(page, "share-link");
    await page.keyboard.press("Escape");
    const stranger = await person(browser, origin);
    await stranger.page.goto(address);
    await stranger.page.getByRole("heading", { name: "Another title" }).waitFor();
    await stranger.page.getByRole("log").getByText("after it", { exact: true }).waitFor();
    assert.equal(await stranger.page.getByLabel("Prompt").count(), 0);
    await accessible(stranger.page, "public link");
    await pictures(stranger.page, "public");
    await page.getByLabel("Prompt").fill("[[say seen by all]]");
    await page.getByRole("button", { name: "Send" }).click();
    await stranger.page.getByRole("log").getByText("seen by all", { exact: true }).waitFor();
    // A reload is no second use.
    await stranger.page.reload();
    await stranger.page.getByRole("log").getByText("seen by all", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Public" }).click();
    await dialog.getByText(/There is a link: opened 1 of 1 time, until /).waitFor();
    await accessible(page, "share with a link");
    await pictures(page, "share-with-link");
    await dialog.getByRole("button", { name: "End the link" }).click();
    await dialog.getByRole("button", { name: "End the link" }).waitFor({ state: "detached" });
    await stranger.page.getByText("The link has ended.").waitFor();
    assert.equal(await stranger.page.getByText(/does not answer/).count(), 0, "an end is an answer");
    await page.keyboard.press("Escape");
    stranger.checked();
    await stranger.context.close();
    const late = await person(browser, origin);
    await late.page.goto(address);
    await late.page.getByText("This link no longer works").waitFor();
    late.checked();
    await late.context.close();
    checked();
  });

  step("a second browser is added with six digits, answers, and is removed", async () => {
    const { page, checked } = me;
    await page.getByRole("link", { name: "Settings" }).first().click();
    await page.getByRole("button", { name: "Add a device" }).click();
    const dialog = page.getByRole("dialog", { name: "Add a device" });
    const address = await dialog.getByLabel("Address", { exact: true }).innerText();
    await accessible(page, "add a device");
    await pictures(page, "add-device");
    second = await person(browser, origin, { viewport: PHONE });
    await second.page.goto(address);
    await second.page.getByLabel("Name of this device").fill("The second browser");
    await accessible(second.page, "link");
    await pictures(second.page, "link");
    await second.page.getByRole("button", { name: "Add this browser" }).click();
    const digits = await second.page.locator(".digits").innerText();
    await dialog.getByLabel("Six digits").fill(digits);
    await dialog.getByRole("button", { name: "Add it" }).click();
    await second.page.getByRole("link", { name: /Another title/ }).waitFor();
    // It has its name in the list that this browser signs, and the other one reads it there.
    await page.getByRole("button", { name: "Rename The second browser" }).click();
    const entry = page.getByRole("listitem").filter({ has: page.getByRole("textbox") });
    await entry.getByLabel("Name of this device").fill("The other browser");
    await accessible(page, "rename a device");
    await entry.getByRole("button", { name: "Save" }).click();
    await page.getByText("The other browser", { exact: true }).waitFor();
    await second.page.goto(`${origin}/settings`);
    await second.page.getByText("The other browser", { exact: true }).waitFor();
    await second.page.getByText(/^Only a primary device can add, rename and remove devices/).waitFor();
    assert.equal(await second.page.getByRole("button", { name: /^(Rename|Remove)/ }).count(), 0);
    await second.page.goto(origin);
    await ensemble(["prompt", session, "[[run touch second]]"]);
    const card = second.page.getByRole("region", { name: /The agent asks/ });
    await card.getByRole("button", { name: "Allow once" }).click();
    await card.waitFor({ state: "detached" });
    await second.page
      .getByRole("main")
      .getByRole("link", { name: /Another title/ })
      .first()
      .click();
    await second.page.getByLabel("Prompt").fill("never sent");
    await page.getByRole("button", { name: "Remove The other browser" }).click();
    await page.getByRole("button", { name: "Remove", exact: true }).click();
    await page.getByText("Removed: The other browser").waitFor();

    const isRemoved = second.page.getByRole("heading", { name: "This server says that this browser was removed" });
    await isRemoved.waitFor();
    await second.page.getByText("never sent", { exact: true }).waitFor();
    await accessible(second.page, "removed");
    await pictures(second.page, "removed");
    const left = (await second.page.evaluate(kept)).filter((one) => one.includes(" kept: "));
    assert.deepEqual(
      left.map((one) => one.split(" kept: ")[1].split(" ")[0]),
      ["draft", "index"],
      "lists and transcripts are wiped",
    );
    // It does not ask again and again.
    await second.page.clock.install();
    await second.page.reload();
    await isRemoved.waitFor();
    const asked = [];
    second.page.on("request", (request) => asked.push(request.url()));
    await second.page.clock.runFor(120_000);
    assert.deepEqual(asked, []);
    second.checked();
    checked();
  });

  step("a browser that was removed is added again with new keys, and wiped", async () => {
    const { page, checked } = me;
    await page.getByRole("button", { name: "Add a device" }).click();
    const dialog = page.getByRole("dialog", { name: "Add a device" });
    await second.page.goto(await dialog.getByLabel("Address", { exact: true }).innerText());
    await second.page.getByRole("button", { name: "Add it again" }).click();
    await second.page.getByRole("button", { name: "Add this browser" }).click();
    await dialog.getByLabel("Six digits").fill(await second.page.locator(".digits").innerText());
    await dialog.getByRole("button", { name: "Add it" }).click();
    await second.page.getByRole("link", { name: /Another title/ }).waitFor();
    await page.getByRole("button", { name: /^Remove .* on / }).click();
    await page.getByRole("button", { name: "Remove", exact: true }).click();
    await page.getByText(/^Removed: .* on /).waitFor();
    await second.page.getByRole("button", { name: "Wipe" }).click();
    await second.page.getByRole("button", { name: "Make an account" }).waitFor();
    second.checked();
    await second.context.close();
    checked();
  });

  step("the words bring the account back in a third browser", async () => {
    const third = await person(browser, origin);
    await third.page.goto(origin);
    await third.page.getByRole("button", { name: /recovery words/ }).click();
    await third.page
      .getByLabel("Recovery words")
      .fill(`${written.slice(0, 23).join(" ")} ${written[23] === "zebra" ? "zoo" : "zebra"}`);
    await third.page.getByRole("button", { name: "Find my account" }).click();
    await third.page.getByRole("alert").waitFor();
    await third.page.getByLabel("Recovery words").fill(written.join("\n"));
    await accessible(third.page, "restore");
    await third.page.getByRole("button", { name: "Find my account" }).click();
    await third.page.getByRole("heading", { name: "Is this your account?" }).waitFor();
    await accessible(third.page, "is this your account");
    await pictures(third.page, "restore");
    await third.page.getByRole("button", { name: "It is mine: bring it back" }).click();
    await third.page
      .getByRole("main")
      .getByRole("link", { name: /Another title/ })
      .click();
    await third.page.getByRole("log").getByText("seen by all", { exact: true }).waitFor();
    third.checked();
    await third.context.close();
  });

  step("a session is begun on the machine from the page", async () => {
    const { page, checked } = me;
    runner = spawn(process.env.ENSEMBLE, ["runner"], { cwd: homedir(), stdio: "ignore" });
    await page.goto(`${origin}/machines`);
    await page.getByRole("main").getByText("Runner online").waitFor();
    await page.getByRole("main").getByText("claude", { exact: true }).waitFor();
    await accessible(page, "machines");
    await pictures(page, "machines");
    await page.getByRole("link", { name: "New session" }).click();
    const directory = page.getByLabel("Directory");
    await directory.waitFor();
    assert.equal(await directory.inputValue(), join(homedir(), "work"), "the one that was used last");
    await page.getByLabel("First prompt").fill("[[say begun by the page]]");
    await page.getByRole("link", { name: "Runs" }).first().click();
    await page.getByRole("heading", { name: "Runs", exact: true }).waitFor();
    await page.goBack();
    await page.waitForFunction(() => document.querySelector("textarea")?.value === "[[say begun by the page]]");
    await accessible(page, "start");
    await pictures(page, "start");
    // In bypass mode the agent asks nothing later.
    await page.getByLabel("Mode", { exact: true }).selectOption("bypass");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    const question = page.getByRole("group", { name: "Start in bypass" });
    await question.getByText(/everything there without asking/).waitFor();
    await accessible(page, "the question before bypass");
    await question.getByRole("button", { name: "Cancel" }).click();
    await question.waitFor({ state: "detached" });
    await page.getByLabel("Mode", { exact: true }).selectOption("ask");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    // This browser has started nothing there yet.
    await page
      .getByRole("group", { name: "Start there" })
      .getByText(/has not used this machine there/)
      .waitFor();
    await accessible(page, "the question before a new machine");
    await page.getByRole("button", { name: "Start there" }).click();
    await page.getByRole("log").getByText("begun by the page", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Details" }).click();
    await page.getByRole("button", { name: "Stop the agent" }).click();
    await phase(page, "Ended").waitFor();
    await page.getByRole("link", { name: /Ended: / }).waitFor();
    await page.getByRole("button", { name: "Resume it" }).click();
    await page.getByLabel("Prompt").fill("[[say and again]]");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("log").getByText("and again", { exact: true }).waitFor();
    checked();
  });

  step("a run shows its tasks, their output and what they wait for, live", async () => {
    const { page, checked } = me;
    await page.goto(`${origin}/runs`);
    await page.getByRole("heading", { name: "Runs", exact: true }).waitFor();
    const plan = {
      title: "Two steps",
      defaults: { provider: "claude", workingDirectory: join(homedir(), "work") },
      tasks: [
        { key: "first", title: "First", prompt: "[[say the first is done]]" },
        { key: "second", title: "Second", dependsOn: ["first"], prompt: "[[say the second is done]]" },
        { key: "broken", title: "Broken", dependsOn: ["first"], prompt: "[[fail 400]]" },
      ],
    };
    const run = await ensemble(["run", "-", "--detach"], JSON.stringify(plan));
    await page.goto(`${origin}/runs/${run.split(/\s/)[0]}`);
    await page.getByRole("heading", { name: "Two steps" }).waitFor();
    await page.getByText("Failed ·").waitFor();
    await page
      .getByRole("group", { name: /The tasks/ })
      .getByRole("button", { name: /Second/ })
      .click();
    await page.getByText("the second is done").first().waitFor();
    await accessible(page, "run");
    await pictures(page, "run");
    await page
      .getByRole("group", { name: /The tasks/ })
      .getByRole("button", { name: /Broken/ })
      .click();
    const panel = page.locator(".task-panel");
    await panel.locator(".failure").waitFor();
    await panel.getByText("Waiting for output…").waitFor({ state: "detached" });
    assert.equal(
      (await panel.innerText()).split("asked to fail").length - 1,
      1,
      `the error stands there more than once: ${await panel.innerText()}`,
    );
    await page.getByRole("link", { name: "All runs" }).click();
    await page.getByRole("link", { name: /Two steps/ }).waitFor();
    await accessible(page, "runs");
    await pictures(page, "runs");
    checked();
  });

  step("after a reload everything is there, and each address has its screen", async () => {
    const { page, checked } = me;
    await page.goto(`${origin}/`);
    await page
      .getByRole("main")
      .getByRole("link", { name: /Another title/ })
      .click();
    await page.reload();
    await page.getByRole("log").getByText("seen by all", { exact: true }).waitFor();
    await page.goto(`${origin}/settings`);
    await page.getByText("The test's browser").waitFor();
    await accessible(page, "settings");
    await pictures(page, "settings");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Go to" }).fill("title another");
    await page.getByRole("option", { name: /Another title/ }).waitFor();
    await accessible(page, "palette");
    await pictures(page, "palette");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Another title" }).waitFor();
    // It also does something with what is shown, and what it did can be taken back.
    const choose = async (words) => {
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox", { name: "Go to" }).fill(words);
      await page.keyboard.press("Enter");
    };
    const undo = page.getByRole("button", { name: "Undo" });
    await Promise.all([undo.hover(), choose("archive this")]);
    await page.getByText("Archived", { exact: true }).waitFor();
    await undo.click();
    await choose("dark colours");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    await choose("system colours");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), undefined);
    await page.goBack();
    await page.getByText("The test's browser").waitFor();
    await page.goBack();
    await page.getByRole("log").getByText("seen by all", { exact: true }).waitFor();
    checked();
  });

  step("a mistyped address is a page that leads home", async () => {
    const { page, faults, checked } = me;
    const here = page.url();
    const answer = await page.goto(`${origin}/settngs`);
    assert.equal(answer.status(), 404);
    await page.getByRole("heading", { name: "There is nothing at this address" }).waitFor();
    await accessible(page, "a mistyped address");
    await page.getByRole("main").getByRole("link", { name: "Home" }).click();
    await page.getByRole("heading", { name: "Home" }).waitFor();
    // The browser notes the status.
    faults.splice(0, faults.length, ...faults.filter((fault) => !fault.endsWith("/settngs")));
    for (const [path, said, back] of [
      ["sessions", "There is no session at this address", "Home"],
      ["runs", "There is no run at this address", "All runs"],
    ]) {
      await page.goto(`${origin}/${path}/01890a5d-ac96-774b-bcce-b302099a8059`);
      await page.getByRole("alert").filter({ hasText: said }).waitFor();
      await page.getByRole("main").getByRole("link", { name: back }).first().waitFor();
    }
    await page.goto(here);
    checked();
  });

  step("what is deleted is gone, also when the page is left at once", async () => {
    const { page, checked } = me;
    await page.getByRole("button", { name: "Details" }).click();
    const dialog = page.getByRole("dialog", { name: "Session" });
    await dialog.getByRole("button", { name: "Delete…" }).click();
    await accessible(page, "delete a session");
    await pictures(page, "delete-session");
    await dialog.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("Deleted", { exact: true }).waitFor();
    await page.reload();
    const left = JSON.parse(await ensemble(["sessions", "--json"]));
    session = undefined;
    assert.ok(!JSON.stringify(left).includes("Another title"), "it is there after the page said that it was deleted");
    const list = page.getByRole("main").getByRole("link");
    await list.filter({ hasText: "begun by the page" }).first().waitFor();
    await list.filter({ hasText: "Another title" }).waitFor({ state: "detached" });
    checked();
  });

  step("a machine that is renamed here is called so, whatever its computer is called", async () => {
    const { page, checked } = me;
    await page.goto(`${origin}/settings`);
    const machine = page.getByRole("listitem").filter({ hasText: "runs agents" });
    await machine.getByRole("button", { name: /^Rename/ }).click();
    const entry = page.getByRole("listitem").filter({ has: page.getByRole("textbox") });
    await entry.getByLabel("Name of this machine").fill("My desk");
    await entry.getByRole("button", { name: "Save" }).click();
    await entry.getByText(/^A machine's name has/).waitFor();
    await entry.getByLabel("Name of this machine").fill("desk-of-ada");
    await accessible(page, "rename a machine");
    await entry.getByRole("button", { name: "Save" }).click();
    await page.getByText("desk-of-ada", { exact: true }).waitFor();
    await page.goto(`${origin}/machines`);
    await page.getByRole("main").getByText("desk-of-ada", { exact: true }).waitFor();
    checked();
  });
});
