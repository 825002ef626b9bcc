// What is shown is what is done: a card lets a person allow only what they could read, and not by a tap that was meant for another.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { shown, twice, visitor } from "./shared.mjs";

const OPTIONS = [
  { optionId: "yes", name: "Allow once", kind: "allow_once" },
  { optionId: "no", name: "Deny", kind: "reject_once" },
];
const asks = (more, requestId = "r1") => ({
  type: "permission",
  requestId,
  title: "Edit a file",
  detail: "touch a",
  options: OPTIONS,
  ...more,
});

/** The card, and what of it a test uses. */
function cardOf(page) {
  const card = page.getByRole("region", { name: /The agent asks/ });
  const button = (name) => card.getByRole("button", { name });
  return {
    card,
    allow: button("Allow once"),
    deny: button("Deny"),
    detail: card.getByRole("group", { name: "What the agent wants to do" }),
    button,
  };
}
const toEnd = (card) => card.locator(".all").evaluate((one) => one.scrollIntoView({ block: "end" }));
/** Waits until it is noticed that a card has moved. */
const drawn = (page) =>
  page.evaluate(async () => {
    for (let frames = 5; frames > 0; frames--) await new Promise((drawn) => requestAnimationFrame(drawn));
  });
const answered = (page) => page.evaluate(() => globalThis.answered);

describe("cards", { timeout: 10 * 60_000 }, () => {
  test("the request itself is shown with its changes, open", async () => {
    const diff = { type: "diff", path: "/w/readme", newText: "harmless\n" };
    const { page, context, checked } = await shown({ bodies: [asks({ detail: "write /etc/passwd", content: [diff] })] });
    const { detail, allow } = cardOf(page);
    await detail.waitFor();
    assert.equal(await detail.innerText(), "write /etc/passwd");
    await allow.click();
    assert.deepEqual(await answered(page), ["r1 yes"]);
    checked();
    await context.close();
  });

  test("a prompt that was not taken says what it waits for", async () => {
    for (const [online, said] of [
      [true, "Waiting for the machine"],
      [false, "The machine is offline and gets this when it is back"],
    ]) {
      const { page, context, checked } = await shown({
        online,
        bodies: [{ type: "prompt", text: "Go on", attachments: [], when: "next" }],
      });
      await page.getByRole("log").getByText(said).waitFor();
      checked();
      await context.close();
    }
  });

  test("a prompt that waits is taken back, and is edited only after the machine has said so", async () => {
    const prompt = (localId, text, more) => ({ type: "prompt", localId, text, attachments: [], when: "next", ...more });
    const queued = (commandId) => ({ type: "receipt", commandId, key: "k", outcome: "queued" });
    const bodies = [
      prompt("p1", "first"),
      queued("p1"),
      prompt("p2", "second"),
      queued("p2"),
      prompt("p3", "third"),
      queued("p3"),
    ];
    const state = {
      phase: "working",
      agent: "claude",
      directory: "/w",
      mode: "ask",
      modes: [],
      models: [],
      commands: [],
      access: [],
    };
    const does = ["take_back"];
    const { page, show, context, checked } = await visitor();
    await show({ bodies, view: { state: { ...state, queue: [], stillRunning: [], does } } });
    const [edit, back, field] = [
      page.getByRole("button", { name: "Edit" }),
      page.getByRole("button", { name: "Take back" }),
      page.getByLabel("Prompt"),
    ];
    const receive = (body) => page.evaluate((one) => globalThis.receive(one), body);
    const rejected = (commandId, code) => receive({ type: "receipt", commandId, key: "k", outcome: "rejected", code });
    const asked = async (at) => (await page.evaluate(() => globalThis.takenBack))[at].split(" ");
    /** What is loaded late is drawn then. */
    const loaded = async () => {
      await page.waitForLoadState("networkidle");
      await drawn(page);
    };
    await field.fill("typed");
    await edit.nth(1).click();
    await page.getByText("Taking it back…").waitFor();
    assert.deepEqual((await asked(0)).slice(0, 2), ["k", "p2"]);
    assert.equal(await field.inputValue(), "typed", "the machine has said nothing yet");
    await rejected("p2", "taken_back");
    await page.getByText("· taken back").waitFor();
    assert.equal(await field.inputValue(), "second\ntyped");
    // It has begun before the machine was asked.
    await edit.nth(0).click();
    const [key, localId, control] = await asked(1);
    assert.equal(localId, "p1");
    await receive({ type: "control", localId: control, action: "take_back", value: { localId, key } });
    await receive({
      type: "receipt",
      commandId: control,
      key: "k",
      outcome: "rejected",
      code: "superseded",
      text: "It has begun.",
    });
    await page.getByText("not done: It has begun.").waitFor();
    await receive({ type: "turn", turnId: "t1", state: "started", cause: "prompt", promptId: "p1" });
    await back.nth(1).waitFor({ state: "detached" });
    assert.equal(await field.inputValue(), "second\ntyped");
    // An older machine cannot, and a guest takes nothing of others back.
    await show({ bodies, view: { state: { ...state, queue: [], stillRunning: [] } } });
    await page.getByText("third").waitFor();
    await loaded();
    assert.equal(await back.count(), 0);
    const theirs = prompt("p4", "theirs", { by: "ben" });
    await show({
      bodies: [...bodies, theirs, queued("p4")],
      isGuest: true,
      view: { state: { ...state, queue: [], stillRunning: [], does } },
    });
    await page.getByText("theirs").waitFor();
    await loaded();
    assert.equal(await back.count(), 0);
    checked();
    await context.close();
  });

  test("with little height a request has the screen to itself, and its buttons are reached", async () => {
    const detail = Array.from({ length: 12 }, (_, at) => `line ${at}`).join("\n");
    for (const viewport of [
      { width: 844, height: 390 },
      { width: 360, height: 225 },
    ]) {
      const { page, context, checked } = await shown({ bodies: [asks({ detail })] }, { viewport });
      const { card, allow } = cardOf(page);
      await toEnd(card);
      await allow.scrollIntoViewIfNeeded();
      await drawn(page);
      const { x, y, width, height } = await allow.boundingBox();
      assert.ok(
        x >= 0 && y >= 0 && x + width <= viewport.width && y + height <= viewport.height,
        `${viewport.width}×${viewport.height}: ${y + height}`,
      );
      assert.equal(await page.getByLabel("Prompt").isVisible(), false);
      await allow.click();
      await page.getByLabel("Prompt").waitFor();
      checked();
      await context.close();
    }
  });

  test("what is too long for a prompt is refused, and taken as a file", async () => {
    const { page, context, checked } = await shown({ bodies: [] });
    const prompt = page.getByLabel("Prompt");
    await prompt.fill("kept");
    await prompt.fill(`kept${"x".repeat(100_000)}`);
    const refused = page.getByRole("alert").filter({ hasText: "at most 100,000 characters, and this would be 100,004" });
    await refused.waitFor();
    assert.equal(await prompt.inputValue(), "kept");
    await refused.getByRole("button", { name: "Add it as a file" }).click();
    await refused.waitFor({ state: "detached" });
    await page.getByRole("list", { name: "Files" }).getByText("pasted.txt").waitFor();
    // Where there is no room for it, it is said.
    await prompt.fill(`kept${"y".repeat(500_000)}`);
    await page.getByRole("button", { name: "Add it as a file" }).click();
    await page
      .getByRole("alert")
      .getByText("pasted.txt has 489 KiB, and the files of a prompt have at most 512 KiB together")
      .waitFor();
    await page.evaluate(() => (globalThis.worksAtOnce = true));
    await page.getByRole("button", { name: "Send" }).click();
    const attached = await page.evaluate(() => globalThis.attached);
    assert.deepEqual(attached, [
      { type: "resource", resource: { uri: "attachment:pasted.txt", mimeType: "text/plain", text: "x".repeat(100_000) } },
    ]);
    checked();
    await context.close();
  });

  test("a file of text that is pasted goes with the prompt, and one of bytes is refused", async () => {
    const { page, context, checked } = await shown({ bodies: [] });
    const paste = (name, bytes) =>
      page.getByLabel("Prompt").evaluate(
        (field, [name, bytes]) => {
          const clipboardData = new DataTransfer();
          clipboardData.items.add(new File([new Uint8Array(bytes)], name, { type: "" }));
          field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
        },
        [name, [...bytes]],
      );
    for (const bytes of [
      [0xff, 0xd8],
      [0x61, 0x00],
    ]) {
      await paste("program", bytes);
      await page.getByRole("alert").getByText("Not added: program is neither a picture nor a text.").waitFor();
    }
    await paste("notes für.txt", new TextEncoder().encode("a text"));
    await page.getByRole("alert").waitFor({ state: "detached" });
    await page.getByText("notes für.txt").waitFor();
    await paste("twice.txt", new TextEncoder().encode("twice"));
    await page.getByRole("button", { name: "Remove twice.txt" }).click();
    await page.evaluate(() => (globalThis.worksAtOnce = true));
    await page.getByRole("button", { name: "Send" }).click();
    const attached = await page.evaluate(() => globalThis.attached);
    assert.deepEqual(attached, [
      { type: "resource", resource: { uri: "attachment:notes%20f%C3%BCr.txt", mimeType: "text/plain", text: "a text" } },
    ]);
    checked();
    await context.close();
  });

  test("a change is shown once, with its path from the directory on", async () => {
    const path = "/home/ann/work/at";
    const diff = { type: "diff", path, oldText: "a\n30\nb\n", newText: "a\n31\nb\n" };
    const state = { type: "state", phase: "waiting", agent: "claude", mode: "ask", directory: "/home/ann/work", keyEpoch: 1 };
    const input = `Edit\nfile_path: ${path}\nnew_string:\na\n31\nb\nold_string:\na\n30\nb\nreplace_all: `;
    for (const [all, left] of [
      ["false", undefined],
      ["true", "replace_all: true"],
    ]) {
      const { page, context, checked } = await shown({
        bodies: [state, asks({ title: `Edit ${path}`, detail: input + all, content: [diff] })],
      });
      const { card, detail, allow } = cardOf(page);
      await card.getByText("Edit at", { exact: true }).waitFor();
      assert.equal((await card.innerText()).includes("/home/ann"), false, "the whole path is in the way");
      assert.equal((await card.innerText()).match(/31/g).length, 1, "it is shown once");
      if (left === undefined) assert.equal(await detail.count(), 0);
      else assert.equal(await detail.innerText(), left, "what the change does not say stands open");
      await card.getByText("As the agent asked it").click();
      assert.equal(await card.getByRole("group", { name: "As the agent asked it" }).innerText(), input + all);
      await toEnd(card);
      await allow.click();
      assert.deepEqual(await answered(page), ["r1 yes"]);
      checked();
      await context.close();
    }
  });

  test("a path that leads out of the directory is shown as it is, and commands are left alone", async () => {
    const state = { type: "state", phase: "waiting", agent: "claude", mode: "ask", directory: "/home/ann/work", keyEpoch: 1 };
    const path = "/home/ann/work/../.ssh/config";
    const { page, context } = await shown({
      bodies: [state, asks({ title: `Edit ${path}`, detail: path, content: [{ type: "diff", path, newText: "a" }] })],
    });
    await cardOf(page).card.getByText(`Edit ${path}`).waitFor();
    await context.close();
    const command = "rm -rf /home/ann/work/";
    const other = await shown({ bodies: [state, asks({ title: command, detail: command })] });
    await cardOf(other.page).card.locator(".title").getByText(command).waitFor();
    await other.context.close();
  });

  test("a guest sees what reaches further, and that it is the owner's to choose", async () => {
    const options = [OPTIONS[0], { optionId: "always", name: "Always allow touch", kind: "allow_always" }, OPTIONS[1]];
    for (const isGuest of [true, false]) {
      const { page, context, checked } = await shown({ isGuest, bodies: [asks({ options })] });
      const { card, button, allow } = cardOf(page);
      await button(/^More/).or(button(/4/)).click();
      const always = button("Always allow touch");
      await always.waitFor();
      assert.equal(await always.evaluate((button) => button.disabled), isGuest);
      assert.equal(await card.getByText("is for the owner to allow").count(), isGuest ? 1 : 0);
      // The grey says why also to those who do not see it.
      const described = await always.evaluate(
        (button) => button.ariaDescribedByElements?.map((one) => one.textContent).join() ?? "",
      );
      assert.equal(described, isGuest ? "More than this request is for the owner to allow." : "");
      if (isGuest) {
        await always.dispatchEvent("click");
        assert.deepEqual(await answered(page), []);
      }
      await allow.click();
      assert.deepEqual(await answered(page), ["r1 yes"]);
      checked();
      await context.close();
    }
  });

  test("what lacks its key is said where it will be", async () => {
    for (const lacksKey of [true, false]) {
      const { page, context, checked } = await shown({ bodies: [asks({})], view: { lacksKey } });
      await cardOf(page).allow.waitFor();
      const said = page.getByRole("status").filter({ hasText: "encrypted with a key that has not reached this device yet" });
      // The sentence is loaded when there is one.
      await page.waitForLoadState("networkidle");
      if (lacksKey) await said.waitFor();
      else assert.equal(await said.count(), 0);
      checked();
      await context.close();
    }
  });

  test("why a machine cannot write is said as the server's word, while the machine is there", async () => {
    for (const [online, cannotWrite, todo] of [
      [true, "key_refused", "ensemble session rekey s makes a new key"],
      [true, "list_unread", "Run ensemble devices on a primary device"],
      [true, undefined, undefined],
      [false, "key_refused", undefined],
    ]) {
      const { page, context, checked } = await shown({ bodies: [asks({})], online, cannotWrite });
      await cardOf(page).allow.waitFor();
      const said = page.getByRole("status").filter({ hasText: "The server says that the machine keeps what the agent does" });
      // The sentence is loaded when there is one.
      await page.waitForLoadState("networkidle");
      if (todo === undefined) assert.equal(await said.count(), 0, `${online} ${cannotWrite}`);
      else assert.ok((await said.innerText()).includes(todo), todo);
      checked();
      await context.close();
    }
  });

  test("what may be by a removed device is called so, and why stands once", async () => {
    const items = [undefined, 4].map((unconfirmed, at) => ({
      id: at,
      seq: at,
      author: { kind: "person", user: "me", key: "k" },
      localId: `p${at}`,
      at: "2026-11-23T17:02:00Z",
      shown: { type: "prompt", prompt: { text: `prompt ${at}`, attachments: [], when: "next" }, taken: { is: "done" } },
      ...(unconfirmed !== undefined && { unconfirmed }),
    }));
    const { page, context, checked } = await shown({ view: { items, withheld: 4 } });
    const names = page.getByRole("log").getByRole("heading");
    await names.last().waitFor();
    assert.deepEqual(
      (await names.allTextContents()).map((name) => name.endsWith(" (not confirmed)")),
      [false, true],
    );
    const said = page.getByRole("status").filter({ hasText: "names version 4 of the owner’s device list" });
    await said.first().waitFor();
    assert.equal(await said.count(), 1);
    checked();
    await context.close();
  });

  test("what is cut can be refused only", async () => {
    for (const more of [{ cut: 7 }, { content: [{ type: "diff", path: "a", newText: "b", cut: 7 }] }]) {
      const { page, context } = await shown({ bodies: [asks(more)] });
      const { card, allow, deny } = cardOf(page);
      await card.getByText("7 bytes do not fit here").waitFor();
      await card.getByText("ensemble attach s").waitFor();
      if (more.content) await card.getByText("+1 and more").waitFor();
      assert.equal(await allow.count(), 0);
      await deny.click();
      assert.deepEqual(await answered(page), ["r1 no"]);
      await context.close();
    }
  });

  test("what is folded is refused only, until all of it is drawn", async () => {
    const numbers = (count) => Array.from({ length: count }, (_, at) => `line ${at}\n`).join("");
    const long = `${"x".repeat(2_500)} its last words`;
    const cases = [
      [numbers(1_000), /^Show more/, "line 999"],
      [long, "Show the whole of a long line", "its last words"],
    ];
    for (const [newText, more, last] of cases) {
      const { page, context } = await shown({ bodies: [asks({ content: [{ type: "diff", path: "a", newText }] })] });
      const { card, allow, deny, button } = cardOf(page);
      await button(more).waitFor();
      assert.ok(!(await card.innerText()).includes(last), "it is folded");
      const isOff = (button) => button.evaluate(({ disabled }) => disabled);
      assert.deepEqual([await isOff(allow), await isOff(deny)], [true, false]);
      await button(more).click();
      assert.ok((await card.innerText()).includes(last));
      await toEnd(card);
      await allow.click();
      assert.deepEqual(await answered(page), ["r1 yes"]);
      await context.close();
    }
  });

  test("a double tap answers one card, and a card that moves takes no tap at once", async () => {
    const { page, context, checked } = await shown({ bodies: [asks({}, "r1"), asks({}, "r2")] });
    const { card, allow } = cardOf(page);
    await card.getByText("1 more").waitFor();
    await allow.and(page.locator("[aria-disabled=false]")).waitFor();
    const [first, second] = [":has(header .more)", ":not(:has(header .more))"].map((one) => `.request${one} footer .primary`);
    assert.equal(await twice(page, first, second), "true");
    assert.deepEqual(await answered(page), ["r1 yes"]);
    await allow.and(page.locator("[aria-disabled=false]")).waitFor();
    const isGuarded = await page.evaluate(async () => {
      const dock = document.querySelector(".dock");
      const button = dock.querySelector(".request footer .primary");
      const noticed = new Promise((noticed) =>
        new MutationObserver(noticed).observe(button, { attributeFilter: ["aria-disabled"] }),
      );
      dock.style.paddingBottom = "90px";
      await noticed;
      button.click();
      return button.getAttribute("aria-disabled");
    });
    assert.deepEqual([isGuarded, await answered(page)], ["true", ["r1 yes"]]);
    await allow.click();
    assert.deepEqual(await answered(page), ["r1 yes", "r2 yes"]);
    checked();
    await context.close();
  });

  test("a long request is allowed only at its end, and says how much follows", async () => {
    const detail = Array.from({ length: 120 }, (_, at) => `echo ${at}`).join("\n");
    for (const size of [
      { width: 390, height: 844 },
      { width: 1_440, height: 900 },
    ]) {
      const { page, context, checked } = await shown({ bodies: [asks({ detail })] }, { viewport: size });
      const { allow, deny, button } = cardOf(page);
      const further = button(/^\d+ more lines?$/);
      await further.waitFor();
      const left = async () => Number.parseInt(await further.innerText(), 10);
      const first = await left();
      assert.ok(first > 60 && first < 130, `${first} lines`);
      const isOff = (button) => button.evaluate(({ disabled }) => disabled);
      assert.deepEqual([await isOff(allow), await isOff(deny)], [true, false]);
      await further.click();
      await page.waitForFunction(
        (before) => Number.parseInt(document.querySelector(".unseen button")?.innerText, 10) < before,
        first,
      );
      assert.ok(await isOff(allow));
      // The button goes as soon as the end is seen.
      while (await isOff(allow)) {
        await page.evaluate(async () => {
          document.querySelector(".unseen button")?.click();
          await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
        });
      }
      await allow.click();
      assert.deepEqual(await answered(page), ["r1 yes"]);
      checked();
      await context.close();
    }
  });

  test("a prompt that may have come through is sent again under its id", async () => {
    const { page, context, checked } = await shown({ bodies: [] });
    await page.getByRole("textbox", { name: "Prompt" }).fill("Delete one file");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.getByText("Not sent: The connection broke.").waitFor();
    await page.getByRole("button", { name: "Send again" }).click();
    await page.getByText("Not sent").waitFor({ state: "detached" });
    const sent = await page.evaluate(() => globalThis.prompted);
    assert.equal(sent.length, 2);
    assert.match(sent[0], /^[\da-f-]{36} Delete one file$/);
    assert.equal(sent[0], sent[1]);
    checked();
    await context.close();
  });

  test("characters that a screen hides are shown in cards and changes", async () => {
    const hidden = ["\u200b", "\u00ad", "\u3164", "\u00a0", "\u{e0041}", "\u202e", "\ufe0f"];
    const text = hidden.join("x");
    const content = [{ type: "diff", path: `a${text}`, newText: text }];
    const { page, context, checked } = await shown({
      bodies: [asks({ title: text, detail: text, content, options: [{ ...OPTIONS[0], name: `Yes${text}` }] })],
    });
    const { card } = cardOf(page);
    await card.waitFor();
    const parts = await card.evaluate((one) =>
      ["header .title", ".detail", ".path", "td.line", "footer .primary"].map((name) => one.querySelector(name).textContent),
    );
    for (const part of parts) {
      for (const one of hidden)
        assert.ok(part.includes(`\\u{${one.codePointAt(0).toString(16)}}`) && !part.includes(one), part);
    }
    checked();
    await context.close();
  });
});
