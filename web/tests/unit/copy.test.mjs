// What is copied, also where a page may not use the clipboard; and what is shown once more because it was kept.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { module, shown, visitor } from "./shared.mjs";

const said = { type: "text", turnId: "t", part: 0, text: "Run **this**:\n\n```sh\ncargo test \u202elimits\n```" };
const CODE = "cargo test \\u{202e}limits";
const MESSAGE = `Run **this**:\n\n\`\`\`sh\n${CODE}\n\`\`\``;
const permissions = ["clipboard-read", "clipboard-write"];
const link = {
  address: "https://ensemble.example/share/token#v1.secret",
  expiresAt: undefined,
  maxUses: 10,
  uses: 1,
  isOld: false,
};

describe("copies", { timeout: 10 * 60_000 }, () => {
  test("code and a message are copied with the keyboard as they are shown", async () => {
    const { page, context, checked } = await shown({ bodies: [said] }, { permissions });
    for (const [name, wanted] of [
      ["Copy code", CODE],
      ["Copy message", MESSAGE],
    ]) {
      const button = page.getByRole("button", { name, exact: true });
      await button.focus();
      await Promise.all([page.getByRole("button", { name: "Copied", exact: true }).waitFor(), page.keyboard.press("Enter")]);
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), wanted);
      await button.waitFor();
    }
    checked();
    await context.close();
  });

  test("without a clipboard the text is selected", async () => {
    const one = await visitor();
    // As over plain HTTP.
    await one.context.addInitScript(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
    await one.show({ bodies: [said], link });
    const { page, context, checked } = one;
    const selected = () => page.evaluate(() => getSelection().toString().trim());
    await page.locator("pre span").first().waitFor();
    const asked = page.getByRole("button", { name: "Selected: copy it now" });
    await Promise.all([asked.waitFor(), page.getByRole("button", { name: "Copy code" }).click()]);
    assert.equal(await selected(), CODE);
    await page.getByRole("button", { name: "Public" }).click();
    const dialog = page.getByRole("dialog");
    await Promise.all([dialog.locator(asked).waitFor(), dialog.getByRole("button", { name: "Copy link" }).click()]);
    assert.equal(await selected(), link.address);
    checked();
    await context.close();
  });

  test("the browser that made a public link copies its address again; another one says that it cannot", async () => {
    const one = await visitor({ permissions });
    await one.show({ bodies: [said], link });
    const { page, context, checked } = one;
    const dialog = page.getByRole("dialog");
    await page.getByRole("button", { name: "Public" }).click();
    const copied = dialog.getByRole("button", { name: "Copied" });
    await Promise.all([copied.waitFor(), dialog.getByRole("button", { name: "Copy link" }).click()]);
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), link.address);
    // The address outlives a reload, and is that of one link.
    await page.evaluate((address) => globalThis.keepAddress("s", { address, createdAt: "2026-01-01T00:00:00Z" }), link.address);
    await page.reload();
    // The page is loaded before its modules have run.
    await page.waitForFunction(() => "knownAddress" in globalThis);
    const known = (at) => page.evaluate((createdAt) => globalThis.knownAddress("s", createdAt), at);
    assert.equal(await known("2026-01-01T00:00:00Z"), link.address);
    assert.equal(await known("2026-01-02T00:00:00Z"), undefined, "it is another link");
    assert.equal(await known("2026-01-01T00:00:00Z"), undefined, "it is forgotten");
    await one.show({ bodies: [said], link: { ...link, address: undefined } });
    await page.getByRole("button", { name: "Public" }).click();
    await dialog.getByText("The address was shown once").waitFor();
    await dialog.getByRole("button", { name: "Make a new link" }).waitFor();
    assert.equal(await dialog.getByRole("button", { name: "Copy link" }).count(), 0);
    checked();
    await context.close();
  });

  test("recovery words are shown after a reload until they are confirmed, and are kept no longer", async () => {
    const one = await visitor();
    const { page, context, checked } = one;
    const words = () => page.getByRole("list", { name: "Recovery words" }).getByRole("listitem").allInnerTexts();
    await one.show({ words: "made" });
    const first = await words();
    assert.equal(first.length, 24);
    for (let count = 0; count < 2; count++) {
      await page.reload();
      await page.getByText("You have not confirmed your words yet.").waitFor();
      assert.deepEqual(await words(), first);
    }
    // What is kept of them is sealed.
    const kept = await page.evaluate(async (name) => {
      const { name: base } = (await indexedDB.databases()).find((found) => found.name.endsWith(" kept"));
      const done = (request) => new Promise((resolve) => (request.onsuccess = () => resolve(request.result)));
      const records = (await done(indexedDB.open(base))).transaction("records").objectStore("records");
      return new TextDecoder().decode((await done(records.get(name))).data);
    }, "recovery words");
    assert.ok(
      first.every((word) => !kept.includes(word)),
      "a word can be read where it is kept",
    );
    await page.getByRole("button", { name: "I have written them down" }).click();
    for (const label of await page.getByText(/^Word \d+$/).allInnerTexts()) {
      await page.getByLabel(label, { exact: true }).fill(first[Number(label.slice(5)) - 1]);
    }
    await page.getByRole("button", { name: "Continue" }).click();
    await page.waitForFunction(() => globalThis.isDone);
    await page.reload();
    await page.getByRole("heading", { name: "Write these words down" }).waitFor();
    assert.equal(await page.getByText("You have not confirmed your words yet.").count(), 0);
    assert.notDeepEqual(await words(), first);
    checked();
    await context.close();
  });

  test("a page that is left while an account is made has words for it afterwards", async () => {
    const one = await visitor();
    const { page, context, checked } = one;
    await one.show({ words: "begun" });
    await page.getByText("You have not confirmed your words yet.").waitFor();
    const list = page.getByRole("list", { name: "Recovery words" }).getByRole("listitem");
    const first = await list.allInnerTexts();
    assert.equal(first.length, 24);
    await one.show({ words: "made" });
    assert.deepEqual(await list.allInnerTexts(), first);
    checked();
    await context.close();
  });

  test("what a person may do says whether they may answer the agent", async () => {
    const { canDo } = await module("/src/share/levels.tsx");
    assert.equal(canDo("view", undefined), "can read");
    assert.equal(canDo("edit", "prompt"), "can read and prompt, but not answer requests");
    assert.equal(canDo("edit", "approve"), "can read, prompt and answer requests");
    assert.equal(canDo("admin", "approve"), "can read, prompt, answer requests and share");
    assert.equal(canDo("admin", undefined), "can read, prompt and share, but not answer requests");
    const { page, context, checked } = await shown({ bodies: [said] });
    await page.getByRole("button", { name: "Share" }).click();
    const levels = page.getByRole("group", { name: "What they can do" }).getByRole("radio");
    await levels.first().waitFor();
    const hints = await levels.evaluateAll((all) =>
      all.map((radio) => document.getElementById(radio.getAttribute("aria-describedby")).innerText),
    );
    assert.equal(hints.length, 3);
    for (const hint of hints) assert.match(hint, /requests/);
    checked();
    await context.close();
  });

  test("a demo can be shared with no one", async () => {
    const { page, context, checked } = await shown({ bodies: [said], agent: "demo" });
    await page.getByRole("button", { name: "Details" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Share" }).count(), 0);
    checked();
    await context.close();
  });
});
