// What a person does with a thumb: taps that come twice, large text, a phone on its side, and questions that are out of sight.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { PHONE } from "../browser.mjs";
import { shown, twice } from "./shared.mjs";

const OPTIONS = [
  { optionId: "yes", name: "Allow once", kind: "allow_once" },
  { optionId: "always", name: "Always allow touch", kind: "allow_always" },
  { optionId: "no", name: "Reject", kind: "reject_once" },
];
const asks = (more) => ({
  type: "permission",
  requestId: "r1",
  title: "Run a command",
  detail: "touch a",
  options: OPTIONS,
  ...more,
});
const state = (phase, more) => ({ type: "state", phase, agent: "claude", mode: "ask", directory: "/w", keyEpoch: 1, ...more });

/** Fails where a part of the element is outside of the window. */
async function inside(locator, { width, height }) {
  const box = await locator.boundingBox();
  const isInside = box.x >= 0 && box.y >= 0 && box.x + box.width <= width && box.y + box.height <= height;
  assert.ok(isInside, `${locator}: ${JSON.stringify(box)} in ${width}×${height}`);
}

describe("a phone", { timeout: 10 * 60_000 }, () => {
  test("the options that More brings take no tap at once", async () => {
    const { page, context, checked } = await shown({ bodies: [asks()] }, { viewport: PHONE });
    const more = page.getByRole("button", { name: "More (1)" });
    await page.getByRole("button", { name: "Allow once" }).and(page.locator("[aria-disabled=false]")).waitFor();
    await more.waitFor();
    const isGuarded = await twice(page, ".request .more", ".request .others button");
    assert.deepEqual([isGuarded, await page.evaluate(() => globalThis.answered)], ["true", []]);
    await page.getByRole("button", { name: "Always allow touch" }).click();
    assert.deepEqual(await page.evaluate(() => globalThis.answered), ["r1 always"]);
    checked();
    await context.close();
  });

  test("a double tap on the arrow does not interrupt", async () => {
    const { page, context, checked } = await shown({ bodies: [state("working")] }, { viewport: PHONE });
    const interrupt = page.getByRole("button", { name: "Interrupt" });
    await page.evaluate(() => (globalThis.worksAtOnce = true));
    await page.getByLabel("Prompt").fill("Go on");
    await interrupt.and(page.locator("[aria-disabled=false]")).waitFor();
    const isGuarded = await twice(page, ".send:not(.stop)", ".acts:not(:has(.send:not(.stop))) > .stop");
    assert.deepEqual([isGuarded, await page.evaluate(() => globalThis.interrupted)], ["true", []]);
    assert.equal((await page.evaluate(() => globalThis.prompted)).length, 1);
    await interrupt.click();
    assert.deepEqual(await page.evaluate(() => globalThis.interrupted), [0]);
    checked();
    await context.close();
  });

  test("with text of twice the size the buttons of the composer are inside of the screen", async () => {
    const models = [
      { id: "sonnet", name: "Sonnet 4.5" },
      { id: "opus", name: "Opus 4.1 with a long name" },
    ];
    const modes = ["ask", "edit", "plan"].map((id) => ({ id, name: id }));
    const now = state("working", { steers: true, modes, models, model: "opus", context: { used: 48_000, size: 200_000 } });
    const { page, context, checked } = await shown({ bodies: [now] }, { viewport: PHONE });
    const bar = page.locator(".composer .bar");
    const height = async () => (await bar.boundingBox()).height;
    const line = await height();
    assert.ok(line < 60, `one line: ${line}`);
    await page.evaluate(() => (document.documentElement.style.fontSize = "30px"));
    await page.getByLabel("Prompt").fill("Go on");
    assert.ok((await height()) > line + 30, "it takes another line");
    for (const name of ["Interrupt", "Queue", "Steer"]) await inside(page.getByRole("button", { name }), PHONE);
    for (const name of ["Mode", "Model"]) await inside(page.getByRole("combobox", { name, exact: true }), PHONE);
    checked();
    await context.close();
  });

  test("on its side the buttons of a request are in sight, and allow only what was shown; the turn can be interrupted", async () => {
    const viewport = { width: 844, height: 390 };
    const detail = Array.from({ length: 40 }, (_, at) => `line ${at}`).join("\n");
    const { page, context, checked } = await shown({ bodies: [state("waiting"), asks({ detail })] }, { viewport });
    const button = (name) => page.getByRole("button", { name });
    await button("Reject").and(page.locator("[aria-disabled=false]")).waitFor();
    for (const name of ["Allow once", "Reject", "Interrupt"]) await inside(button(name), viewport);
    assert.equal(await button("Allow once").evaluate(({ disabled }) => disabled), true, "its end was not shown");
    await button("Interrupt").click();
    assert.deepEqual(await page.evaluate(() => globalThis.interrupted), [0]);
    await page.locator(".request .all").evaluate((all) => all.scrollIntoView({ block: "end" }));
    await button("Allow once").click();
    assert.deepEqual(await page.evaluate(() => globalThis.answered), ["r1 yes"]);
    checked();
    await context.close();
  });

  test("a question whether to delete is brought into sight, and has the focus", async () => {
    const viewport = { width: 390, height: 360 };
    const { page, context, checked } = await shown({ bodies: [state("idle")] }, { viewport });
    await page.getByRole("button", { name: "Details" }).click();
    await page.getByRole("button", { name: "Delete…" }).click();
    const question = page.getByRole("group", { name: "Delete this session?" });
    await inside(question, viewport);
    assert.ok(await question.evaluate((one) => one === document.activeElement));
    checked();
    await context.close();
  });

  test("what Details offers follows whether the session is archived", async () => {
    const { page, context, checked } = await shown({ bodies: [state("idle")] });
    await page.getByRole("button", { name: "Details" }).click();
    await page.getByRole("button", { name: "Archive", exact: true }).waitFor();
    const list = (archived) =>
      page.evaluate((archived) => {
        globalThis.sessions.set({ rows: [{ ...globalThis.row, archived }], isLoaded: true, error: undefined });
      }, archived);
    await list(true);
    await page.getByRole("button", { name: "Put back into the list" }).waitFor();
    await list(false);
    await page.getByRole("button", { name: "Archive", exact: true }).waitFor();
    checked();
    await context.close();
  });

  test("the long name of a file stays inside of its prompt, and the language of code has a line of its own", async () => {
    const uri = `attachment:${"a".repeat(70)}.txt`;
    const prompt = {
      type: "prompt",
      text: "See",
      when: "next",
      attachments: [{ type: "resource", resource: { uri, mimeType: "text/plain", text: "a" } }],
    };
    const code = { type: "text", turnId: "t", part: 0, text: `\`\`\`rust\n${"let long = 1; ".repeat(20)}\n\`\`\`` };
    const { page, context, checked } = await shown({ bodies: [prompt, code] }, { viewport: PHONE });
    const [bubble, name] = [page.locator(".bubble"), page.locator(".bubble .tag")];
    await name.getByText(/^a+/).waitFor();
    const [outer, inner] = [await bubble.boundingBox(), await name.boundingBox()];
    assert.ok(inner.x >= outer.x && inner.x + inner.width <= outer.x + outer.width, JSON.stringify([outer, inner]));
    const [label, block] = [page.getByText("rust", { exact: true }), page.getByRole("group", { name: "Code, rust" })];
    const [above, below] = [await label.boundingBox(), await block.boundingBox()];
    assert.ok(above.y + above.height <= below.y, JSON.stringify([above, below]));
    checked();
    await context.close();
  });
});
