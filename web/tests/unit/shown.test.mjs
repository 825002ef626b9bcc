// Code in colours, changes side by side, pictures, and prompts that were not sent, with made-up contents.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, DESK, PHONE, pictures } from "../browser.mjs";
import { shown } from "./shared.mjs";

const says = (text) => ({ type: "text", turnId: "t", part: 0, text });

describe("what is shown", () => {
  test("code has colours, in a language that is known and up to a bound, and is the same text", async () => {
    const rust = 'fn main() { let x = "1"; } // \u202E<b>';
    const long = "let x = 1;\n".repeat(2_000);
    const { page, context, checked } = await shown({
      bodies: [says(`\`\`\`rust\n${rust}\n\`\`\`\n\n\`\`\`nothing\nfn a() {}\n\`\`\`\n\n\`\`\`javascript\n${long}\`\`\``)],
    });
    const block = page.getByRole("group", { name: "Code, rust" });
    await block.locator(".hljs-keyword", { hasText: "fn" }).waitFor();
    assert.equal(await block.innerText(), rust.replace("\u202E", "\\u{202e}"));
    assert.equal(await page.locator("b").count(), 0);
    await accessible(page, "code");
    await pictures(page, "code");
    assert.equal(await page.getByRole("group", { name: "Code, nothing" }).locator("span").count(), 0);
    assert.equal(await page.getByRole("group", { name: "Code, javascript" }).locator("span").count(), 0);
    checked();
    await context.close();
  });

  test("a request and its answer are a mark on their step", async () => {
    const options = [
      { optionId: "yes", name: "Allow once", kind: "allow_once" },
      { optionId: "no", name: "Deny", kind: "reject_once" },
    ];
    const steps = [
      ["a", "touch a", "yes"],
      ["b", "touch b", "no"],
    ].flatMap(([id, title, optionId]) => [
      { type: "tool_call", toolCallId: id, turnId: "t", title, kind: "execute", status: "pending" },
      { type: "permission", requestId: id, toolCallId: id, title, detail: title, options },
      { type: "resolved", requestId: id, outcome: "selected", optionId, by: "me" },
      { type: "tool_call", toolCallId: id, turnId: "t", status: "completed" },
    ]);
    const { page, context, checked } = await shown({ bodies: steps });
    const rows = page.getByRole("log").locator(".tool > summary");
    await rows
      .filter({ hasText: "touch a" })
      .filter({ hasText: /allowed by/ })
      .waitFor();
    await rows
      .filter({ hasText: "touch b" })
      .filter({ hasText: /denied by/ })
      .waitFor();
    assert.equal(
      await page.getByRole("log").locator(".asked-line").filter({ hasText: "touch" }).count(),
      0,
      "it has no row of its own",
    );
    await accessible(page, "steps with marks");
    await pictures(page, "steps");
    checked();
    await context.close();
  });

  test("what fails again and again is one row, and a plan is there while the agent works", async () => {
    const fails = (text, code = "overloaded") => ({ type: "error", code, text });
    const plan = { type: "plan", entries: [{ content: "Look", priority: "high", status: "pending" }] };
    const state = (phase) => ({ type: "state", phase, agent: "claude", mode: "ask", directory: "/w", keyEpoch: 1 });
    for (const phase of ["working", "idle"]) {
      const bodies = [
        state(phase),
        plan,
        fails("Attempt 1 of 10"),
        fails("Attempt 2 of 10"),
        fails("Attempt 3 of 10"),
        fails("It crashed", "crashed"),
      ];
      const { page, context, checked } = await shown({ bodies });
      await page.getByText("The model is overloaded (3 times)").waitFor();
      const failures = await page.locator(".failure").allInnerTexts();
      assert.deepEqual(
        failures.map((text) => text.split("\n").pop()),
        ["Attempt 3 of 10", "It crashed"],
      );
      assert.equal(await page.locator(".plan").count(), phase === "working" ? 1 : 0);
      checked();
      await context.close();
    }
  });

  test("an agent that has lost the conversation gets the last messages", async () => {
    const lost = { type: "error", code: "context", text: "It begins a new one." };
    const bodies = [{ type: "prompt", text: "Where is it?", when: "next" }, says("In the barn.\nBehind the door."), lost];
    const { page, context, checked } = await shown({ bodies });
    await page.getByRole("button", { name: "Insert the last messages" }).click();
    assert.equal(
      await page.getByLabel("Prompt").inputValue(),
      "This is what was said last, before you lost the conversation:\n\nA person:\n> Where is it?\n\nYou:\n> In the barn.\n> Behind the door.\n\n",
    );
    await page.getByRole("button", { name: "Insert the last messages" }).waitFor({ state: "detached" });
    checked();
    await context.close();
    // After the next prompt it is not offered.
    const later = await shown({ bodies: [...bodies, { type: "prompt", text: "Look again.", when: "next" }] });
    await later.page.getByText("Look again.").waitFor();
    assert.equal(await later.page.getByRole("button", { name: "Insert the last messages" }).count(), 0);
    await later.context.close();
  });

  test("commands that outlive their turn are named, and ended while no turn is under way", async () => {
    const state = (phase, stillRunning) => ({
      type: "state",
      phase,
      agent: "claude",
      mode: "ask",
      directory: "/w",
      keyEpoch: 1,
      stillRunning,
    });
    const { page, context, checked } = await shown({ bodies: [state("idle", ["sleep 100"])] });
    const left = page.locator(".still-running");
    await left.getByText("1 command still runs: sleep 100").waitFor();
    await left.locator("summary").click();
    await accessible(page, "a command that still runs");
    await pictures(page, "still-running");
    await left.getByRole("button", { name: "End" }).click();
    await left.waitFor({ state: "detached" });
    checked();
    await context.close();
    // What ends them would end the turn too.
    const busy = await shown({ bodies: [state("working", ["sleep 100", "tail -f \u202Elog"])] });
    await busy.page.locator(".still-running").getByText("2 commands still run: sleep 100, tail -f \\u{202e}log").waitFor();
    assert.equal(await busy.page.getByRole("button", { name: "End", exact: true }).count(), 0);
    await busy.context.close();
    // A machine that is away may have ended them.
    const away = await shown({ online: false, bodies: [state("idle", ["sleep 100"])] });
    await away.page.getByText("Machine away").waitFor();
    assert.equal(await away.page.locator(".still-running").count(), 0);
    await away.context.close();
  });

  test("nothing in what a server says is hidden", async () => {
    const state = {
      type: "state",
      phase: "idle",
      agent: "claude",
      mode: "ask",
      directory: "/w",
      keyEpoch: 1,
      stillRunning: ["sleep 100"],
    };
    const { page, context, checked } = await shown({
      bodies: [state],
      refusal: "No: \u202Egnp.exe\u0000 \u001b]52;c;aGk=\u0007",
    });
    await page.getByRole("button", { name: "End", exact: true }).click();
    const alert = page.getByRole("alert");
    await alert.waitFor();
    assert.equal(await alert.innerText(), "No: \\u{202e}gnp.exe\\u{0} \\u{1b}]52;c;aGk=\\u{7}");
    checked();
    await context.close();
  });

  test("what a link has no key for is said once, and who lost a session cannot write in it", async () => {
    const link = await shown({
      bodies: [says("Before")],
      isPublic: true,
      view: { hasLater: true, may: { prompt: false, approve: false, own: false } },
    });
    await link.page
      .getByText(
        "This link cannot show what was written after the session got a new key. Ask the person who sent it for a new link.",
      )
      .waitFor();
    link.checked();
    await link.context.close();
    for (const isGone of [false, true]) {
      const { page, context, checked } = await shown({
        bodies: [says("Before")],
        view: { isGone, ...(isGone && { error: "You no longer have access to this session." }) },
      });
      await page.getByRole("log").getByText("Before").waitFor();
      assert.equal(
        await page.getByRole("alert").filter({ hasText: "You no longer have access to this session." }).count(),
        isGone ? 1 : 0,
      );
      assert.equal(await page.getByLabel("Prompt").count(), isGone ? 0 : 1);
      checked();
      await context.close();
    }
  });

  test("a table breaks no word that has room", async () => {
    const long =
      "A sentence that is much longer than any column can be, so that each column wants all of the room that there is. ".repeat(
        3,
      );
    const text = `| Permission | Meaning | Documentation |\n|---|---|---|\n| administration | ${long} | ${long} |`;
    for (const viewport of [PHONE, DESK]) {
      const { page, context, checked } = await shown({ bodies: [says(text)] }, { viewport });
      const cells = page.getByRole("table").locator("th, td:first-child");
      await cells.first().waitFor();
      const lines = await cells.evaluateAll((all) =>
        all.map((cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          return [cell.textContent, range.getClientRects().length];
        }),
      );
      assert.deepEqual(lines, [
        ["Permission", 1],
        ["Meaning", 1],
        ["Documentation", 1],
        ["administration", 1],
      ]);
      checked();
      await context.close();
    }
  });

  test("a change stands side by side where there is room, and is remembered so", async () => {
    const change = {
      type: "diff",
      path: "/w/limits.rs",
      oldText: "one\ntwo\nthree\n",
      newText: "one\n2\nmore\nthree\n",
      line: 41,
    };
    const call = {
      type: "tool_call",
      turnId: "t",
      toolCallId: "a",
      title: "Edit",
      kind: "edit",
      status: "completed",
      content: [change],
    };
    const { page, context, checked } = await shown({ bodies: [call] }, { viewport: DESK });
    await page.getByRole("log").getByText("Edit").click();
    const rows = () =>
      page.locator(".changes tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent.trim())));
    assert.deepEqual(await rows(), [
      ["41", "", "one"],
      ["42", "-", "two"],
      ["42", "+", "2"],
      ["43", "+", "more"],
      ["44", "", "three"],
    ]);
    await page.getByRole("button", { name: "Side by side" }).click();
    assert.deepEqual(await rows(), [
      ["41", "one", "41", "one"],
      ["42", "- two", "42", "+ 2"],
      ["", "", "43", "+ more"],
      ["43", "three", "44", "three"],
    ]);
    await accessible(page, "changes side by side");
    await pictures(page, "changes");
    await page.setViewportSize(PHONE);
    await page.getByRole("button", { name: "Unified" }).waitFor({ state: "detached" });
    assert.equal((await rows())[0].length, 3, "a phone has no room for it");
    await page.setViewportSize(DESK);
    await page.reload();
    await page.getByRole("log").getByText("Edit").click();
    await page.getByRole("button", { name: "Unified" }).waitFor();
    checked();
    await context.close();
  });

  test("a change has the numbers that its lines have in the file, or none", async () => {
    const content = [
      { type: "diff", path: "/w/a", oldText: "one\n", newText: "one\ntwo\n", line: 41 },
      { type: "diff", path: "/w/a", oldText: "x\n", newText: "y\n", line: 80 },
      { type: "diff", path: "/w/b", oldText: "x\n", newText: "y\n" },
      { type: "diff", path: "/w/c", oldText: null, newText: "new\n" },
    ];
    const call = { type: "tool_call", turnId: "t", toolCallId: "a", title: "Edit", kind: "edit", status: "completed", content };
    const { page, context, checked } = await shown({ bodies: [call] });
    await page.getByRole("log").getByText("Edit").click();
    await page.locator(".changes").nth(3).waitFor();
    const rows = await page
      .locator(".changes tr")
      .evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent.trim())));
    // What an earlier change has added moves what comes after it.
    assert.deepEqual(rows, [
      ["41", "", "one"],
      ["42", "+", "two"],
      ["80", "-", "x"],
      ["81", "+", "y"],
      ["", "-", "x"],
      ["", "+", "y"],
      ["1", "+", "new"],
    ]);
    checked();
    await context.close();
  });

  test("a prompt that was not sent outlives a reload, and is sent again with its id", async () => {
    const { page, context, checked } = await shown({ bodies: [] });
    await page.getByLabel("Prompt").fill("Do it");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText("Not sent: The connection broke.").waitFor();
    const [first] = await page.evaluate(() => globalThis.prompted);
    // What is kept is written by the time that it can be read again.
    // A function that `waitForFunction` polls must not be async: it takes the promise for a true value.
    const isKept = async () => {
      const db = await new Promise((resolve) => {
        const request = indexedDB.open(`ensemble ${location.origin} kept`);
        request.onsuccess = () => resolve(request.result);
      });
      const keys = await new Promise((resolve) => {
        const request = db.transaction("records").objectStore("records").getAllKeys();
        request.onsuccess = () => resolve(request.result);
      });
      db.close();
      return keys.some((key) => key.startsWith("unsent "));
    };
    while (!(await page.evaluate(isKept))) await page.evaluate(() => new Promise(requestAnimationFrame));
    await page.addInitScript(() => {
      globalThis.worksAtOnce = true;
    });
    await page.reload();
    await page.getByText("Not sent: The connection broke.").waitFor();
    await page.getByRole("button", { name: "Send again" }).click();
    await page.getByText("Not sent:").waitFor({ state: "detached" });
    assert.equal((await page.evaluate(() => globalThis.prompted)).at(-1), first);
    checked();
    await context.close();
  });
});
