// The tabs Changes and Files: what a machine shows, what it refuses, and what is put into the composer.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, PHONE, pictures } from "../browser.mjs";
import { module, shown, visitor } from "./shared.mjs";

const state = (more) => ({
  type: "state",
  phase: "idle",
  agent: "claude",
  mode: "ask",
  modes: [{ id: "ask", name: "ask" }],
  models: [],
  steers: true,
  directory: "/home/ann/work/ensemble",
  branch: "mend-limits",
  keyEpoch: 1,
  does: ["look.names", "look.file", "look.git", "look.later"],
  ...more,
});
const DIFF = `diff --git a/src/limits.rs b/src/limits.rs
index 0123456..789abcd 100644
--- a/src/limits.rs
+++ b/src/limits.rs
@@ -10,5 +10,6 @@ impl Limits {
     fn quota(limit: NonZeroU32) -> Quota {
-        Quota::per_minute(limit)
+        // Without a burst the first request would wait.
+        Quota::per_minute(limit).allow_burst(limit)
     }
--- a line that looks like a head
+++ another one
 }
`;
const git = (more) => ({
  seen: "s1",
  head: "4f1c2d3e".repeat(5),
  branch: "mend-limits",
  upstream: "origin/mend-limits",
  ahead: 2,
  behind: 1,
  remotes: [],
  files: [
    { path: "src/limits.rs", kind: "modified", added: 3, removed: 2 },
    {
      path: "src/a/very/long/path/with/many/directories/and-a-name-that-does-not-fit-on-any-phone.generated.rs",
      kind: "added",
      added: 1_204,
      removed: 0,
    },
    { path: "assets/logo.png", kind: "added", added: null, removed: null },
  ],
  fileCount: 3,
  added: 1_207,
  removed: 2,
  notes: [],
  ...more,
});
const entry = (path, more) => ({ path, kind: "file", bytes: 1_200, isIgnored: false, ...more });
const answers = {
  "state begin": git({ notes: ["The beginning of this session is known by its commit only."] }),
  "state now": git({ files: [], fileCount: 0, added: 0, removed: 0, seen: "s2" }),
  "diff begin src/limits.rs": { text: DIFF, cut: 0 },
  "diff begin assets/logo.png": {
    text: "diff --git a/x b/x\nnew file mode 100644\nBinary files /dev/null and b/x differ\n",
    cut: 0,
  },
  log: Array.from({ length: 10 }, (_, at) => ({
    id: `${at}4f1c2d3`.repeat(5),
    subject: `Commit ${at}: <b>mend</b> the limiter`,
    author: "Ann",
    at: "2026-11-23T17:02:00Z",
  })),
  "names ": {
    entries: [
      entry("src", { kind: "directory", bytes: undefined }),
      entry(".env", { isIgnored: true }),
      entry("README.md"),
      entry("logo.svg"),
      entry("page.html"),
      entry("pipe\\u{7}", { kind: "other", bytes: undefined }),
      entry("latest", { kind: "link", bytes: undefined }),
    ],
    more: true,
  },
  "names src": {
    entries: [entry("src/limits.rs"), entry("src/huge.bin", { bytes: 9_000_000 }), entry("src/data.bin")],
    more: false,
  },
  "file src/limits.rs": {
    kind: "text",
    bytes: 60,
    content: "fn quota(limit: u32) -> Quota {\n    Quota::per_minute(limit)\n}\n",
  },
  "file src/huge.bin": { kind: "other", bytes: 9_000_000 },
  "file src/data.bin": { kind: "other", bytes: 3, content: "abc" },
  "file .env": { kind: "text", bytes: 9, content: "TOKEN=abc" },
  "file README.md": { kind: "text", bytes: 30, content: "# Title\n\n<script>document.body.dataset.owned = 1</script>\n" },
  "file page.html": { kind: "text", bytes: 30, content: "<img src=x onerror='document.body.dataset.owned = 1'>" },
  "file logo.svg": {
    kind: "picture",
    bytes: 30,
    content:
      '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><rect width="40" height="20"/><script>document.body.dataset.owned = 1</script></svg>',
  },
};
const session = (more) => ({ bodies: [state(more)], looks: { answers } });
const tab = (page, name) => page.getByRole("tab", { name });
const composer = (page) => page.getByRole("textbox", { name: "Prompt" });
const looked = (page) => page.evaluate(() => globalThis.looked);

describe("looks", { timeout: 10 * 60_000 }, () => {
  test("a tab is there only when the machine does what it needs", async () => {
    const one = await visitor();
    for (const [does, names] of [
      [undefined, []],
      [["take_back"], []],
      [["look.git"], ["Chat", "Changes"]],
      [["look.names", "look.request"], []],
      [
        ["look.names", "look.file"],
        ["Chat", "Files"],
      ],
      [
        ["look.git", "look.names", "look.file"],
        ["Chat", "Changes", "Files"],
      ],
    ]) {
      await one.show(session({ does }));
      await one.page.getByRole("log").waitFor();
      if (names.length > 0) await tab(one.page, "Chat").waitFor();
      assert.deepEqual(await one.page.getByRole("tab").allInnerTexts(), names, String(does));
    }
    await one.show({ bodies: [state()], isPublic: true });
    await one.page.getByRole("log").waitFor();
    assert.equal(await one.page.getByRole("tab").count(), 0, "a public link shows no files");
    one.checked();
    await one.context.close();
  });

  test("arrow keys go from tab to tab, and the panel is named by its tab", async () => {
    const { page, context, checked } = await shown(session());
    await tab(page, "Chat").focus();
    for (const [key, name] of [
      ["ArrowRight", "Changes"],
      ["ArrowRight", "Files"],
      ["ArrowRight", "Chat"],
      ["ArrowLeft", "Files"],
      ["Home", "Chat"],
      ["End", "Files"],
    ]) {
      await page.keyboard.press(key);
      assert.equal(await page.evaluate(() => document.activeElement.innerText), name, key);
      assert.equal(await tab(page, name).getAttribute("aria-selected"), "true");
      await page.getByRole("tabpanel", { name }).waitFor();
    }
    checked();
    await context.close();
  });

  test("changes say how the branch stands, and a file opens with its lines", async () => {
    const { page, context, checked } = await shown(session());
    await tab(page, "Changes").click();
    const panel = page.getByRole("tabpanel", { name: "Changes" });
    await panel.getByText("2 ahead of origin/mend-limits, 1 behind").waitFor();
    await panel.getByText("3 files, +1,207 −2").waitFor();
    await panel.getByText("The beginning of this session is known by its commit only.").waitFor();
    assert.equal(await panel.locator(".commits li").count(), 10);
    await panel.getByText("Commit 0: <b>mend</b> the limiter").waitFor();
    await panel.getByRole("button", { name: /limits\.rs/ }).click();
    const lines = panel.getByRole("group", { name: "Changes of src/limits.rs" });
    await lines.waitFor();
    const rows = await lines
      .locator("tr:not(.gap)")
      .evaluateAll((all) => all.map((row) => row.innerText.replace(/\s+/g, " ").trim()));
    assert.deepEqual(rows, [
      "10 fn quota(limit: NonZeroU32) -> Quota {",
      "11 - Quota::per_minute(limit)",
      "11 + // Without a burst the first request would wait.",
      "12 + Quota::per_minute(limit).allow_burst(limit)",
      "13 }",
      "13 - -- a line that looks like a head",
      "14 + ++ another one",
      "15 }",
    ]);
    await accessible(page, "changes");
    await pictures(page, "changes");
    await panel.getByRole("button", { name: /logo\.png/ }).click();
    await panel.getByText("There are no lines to show").waitFor();
    await panel.getByRole("radio", { name: "Not committed" }).check();
    await panel.getByText("Everything is committed.").waitFor();
    assert.equal(await panel.getByRole("button", { name: "Have the agent commit this" }).count(), 0);
    checked();
    await context.close();
  });

  test("under a finger whatever is tapped has 44 pixels on each side", async () => {
    const { page, context, checked } = await shown(session(), { viewport: PHONE, hasTouch: true });
    await tab(page, "Changes").tap();
    await page.getByRole("button", { name: /limits\.rs/ }).tap();
    await page.locator("tr.added td.line").first().tap();
    assert.equal(await composer(page).inputValue(), "src/limits.rs:11 ");
    await accessible(page, "changes under a finger");
    await tab(page, "Files").tap();
    await page.getByRole("button", { name: "src/" }).tap();
    await page.getByRole("button", { name: /limits\.rs/ }).tap();
    await page.getByText("Quota::per_minute").waitFor();
    await accessible(page, "files under a finger");
    checked();
    await context.close();
  });

  test("a line and the wish to commit are put into the composer, and nothing is sent", async () => {
    const { page, context, checked } = await shown(session());
    await tab(page, "Changes").click();
    await page.getByRole("button", { name: /limits\.rs/ }).click();
    const row = page.locator("tr.added").first();
    await row.locator("td.line").click();
    assert.equal(await composer(page).inputValue(), "src/limits.rs:11 ");
    await page.getByRole("group", { name: "Changes of src/limits.rs" }).focus();
    for (let down = 0; down < 4; down++) await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    assert.equal(await composer(page).inputValue(), "src/limits.rs:11 src/limits.rs:12 ");
    await composer(page).fill("");
    await page.getByRole("button", { name: "Have the agent commit this" }).click();
    assert.match(await composer(page).inputValue(), /^Commit what has changed/);
    assert.deepEqual(await page.evaluate(() => globalThis.prompted), []);
    checked();
    await context.close();
  });

  test("what is selected to be copied is not mentioned", async () => {
    const { page, context, checked } = await shown(session());
    await tab(page, "Changes").click();
    await page.getByRole("button", { name: /limits\.rs/ }).click();
    const line = page.locator("tr.added td.line").first();
    const { x, y, height } = await line.boundingBox();
    await page.mouse.move(x + 10, y + height / 2);
    await page.mouse.down();
    await page.mouse.move(x + 120, y + height / 2, { steps: 4 });
    await page.mouse.up();
    assert.notEqual(await page.evaluate(() => getSelection().toString()), "");
    assert.equal(await composer(page).inputValue(), "");
    await page.evaluate(() => getSelection().empty());
    await line.click({ clickCount: 3 });
    assert.equal(await composer(page).inputValue(), "src/limits.rs:11 ", "of three clicks the first one counts");
    checked();
    await context.close();
  });

  test("files are a level at a time, and what git does not have opens at the second tap", async () => {
    const { page, context, checked } = await shown(session());
    await tab(page, "Files").click();
    const panel = page.getByRole("tabpanel", { name: "Files" });
    await panel.getByText("There are more. Only the first ones are listed.").waitFor();
    assert.ok(await panel.getByRole("button", { name: /pipe/ }).isDisabled());
    await accessible(page, "files");
    await pictures(page, "files");
    await panel.getByRole("button", { name: /\.env/ }).click();
    await panel.getByText("This file is not in git. It may hold secrets.").waitFor();
    assert.deepEqual(await looked(page), ["names "], "nothing of it was asked for");
    await panel.getByRole("button", { name: "Open it" }).click();
    await panel.getByText("TOKEN=abc").waitFor();
    const trail = panel.getByRole("navigation", { name: "Where you are" });
    await trail.getByRole("button", { name: "Files" }).click();
    await panel.getByRole("button", { name: "src/" }).click();
    await panel.getByRole("button", { name: /limits\.rs/ }).click();
    await panel.getByText("Quota::per_minute(limit)").waitFor();
    await panel.locator(".hljs-keyword").first().waitFor();
    await accessible(page, "a file");
    await pictures(page, "file");
    await trail.getByRole("button", { name: "src" }).click();
    await panel.getByRole("button", { name: /huge\.bin/ }).click();
    await panel.getByText("8.6 MiB. It is not shown: it has more than 512 KiB.").waitFor();
    await trail.getByRole("button", { name: "src" }).click();
    await panel.getByRole("button", { name: /data\.bin/ }).click();
    await panel.getByText("it is neither a text nor a picture").waitFor();
    checked();
    await context.close();
  });

  test("the keyboard alone goes through files, and the focus is never lost", async () => {
    const { page, context, checked } = await shown(session());
    await tab(page, "Files").click();
    const press = async (name) => {
      await page.getByRole("tabpanel").getByRole("button", { name }).focus();
      await page.keyboard.press("Enter");
    };
    const isInside = () => page.evaluate(() => document.activeElement.closest("[role=tabpanel]") !== null);
    for (const [name, next] of [
      ["src/", "limits.rs"],
      [/limits\.rs/, "Quota::per_minute"],
      ["Files", "README.md"],
      [/\.env/, "It may hold secrets"],
      ["Open it", "TOKEN=abc"],
      ["Read again", "TOKEN=abc"],
    ]) {
      await press(name);
      await page.getByText(next).first().waitFor();
      assert.ok(await isInside(), String(name));
    }
    await page.getByRole("button", { name: "Read again" }).evaluate((one) => (one.blur(), one.click()));
    await page.waitForFunction(() => globalThis.looked.filter((one) => one === "file .env").length === 3);
    await page.getByText("TOKEN=abc").waitFor();
    assert.equal(await isInside(), false, "a person may leave");
    checked();
    await context.close();
  });

  test("HTML and Markdown are text, and a picture runs nothing", async () => {
    const { page, context, checked } = await shown(session());
    await tab(page, "Files").click();
    const panel = page.getByRole("tabpanel", { name: "Files" });
    const back = () => panel.getByRole("navigation").getByRole("button", { name: "Files" }).click();
    await panel.getByRole("button", { name: /README/ }).click();
    await panel.getByText("<script>document.body.dataset.owned = 1</script>").waitFor();
    await back();
    await panel.getByRole("button", { name: /page\.html/ }).click();
    await panel.getByText("onerror").first().waitFor();
    await back();
    await panel.getByRole("button", { name: /logo\.svg/ }).click();
    const picture = panel.getByRole("img", { name: "logo.svg" });
    await picture.waitFor();
    await page.waitForFunction(() => document.querySelector("img.looked-picture").naturalWidth === 40);
    assert.match(await picture.getAttribute("src"), /^blob:/);
    assert.equal(await page.evaluate(() => document.body.dataset.owned), undefined);
    checked();
    await context.close();
  });

  test("a person who may not see it, and a machine that is away, are not asked", async () => {
    const one = await visitor({ viewport: PHONE });
    const guest = { prompt: true, approve: false, own: false };
    for (const [more, said] of [
      [{ view: { may: guest } }, "Files are shown to people who may approve."],
      [{ online: false }, /^laptop is away since .*11:53/],
      [{ view: { keptAt: "2026-11-23T11:53:00Z" } }, /^There is no connection\./],
    ]) {
      await one.show({ ...session(), ...more });
      for (const name of ["Changes", "Files"]) {
        await tab(one.page, name).click();
        await one.page.getByRole("tabpanel", { name }).getByText(said).waitFor();
      }
      assert.deepEqual(await looked(one.page), [], String(said));
      await accessible(one.page, "no files");
      await pictures(one.page, `no-files-${String(said).replace(/\W+/g, "-").slice(0, 12)}`);
    }
    one.checked();
    await one.context.close();
  });

  test("what a machine refuses is said with what to do, and asked again by a click only", async () => {
    const one = await visitor();
    for (const [refused, said] of [
      ["busy", "Refused: busy. Do something else."],
      ["away", /Try again when it is back/],
      ["stale", /Correct the one that is wrong/],
      ["superseded", "Refused: superseded. Do something else."],
      ["unsupported", "Refused: unsupported. Do something else."],
      ["not_allowed", "Refused: not_allowed. Do something else."],
    ]) {
      await one.show({ ...session(), looks: { refused } });
      await tab(one.page, "Files").click();
      const alert = one.page.getByRole("alert");
      await alert.getByText(said).waitFor();
      assert.deepEqual(await looked(one.page), ["names "]);
      await alert.getByRole("button", { name: "Try again" }).click();
      await one.page.waitForFunction(() => globalThis.looked.length === 2);
      await tab(one.page, "Changes").click();
      await one.page.getByRole("alert").getByText(said).waitFor();
    }
    one.checked();
    await one.context.close();
  });

  test("questions are asked one after the other, and one that is not wanted any more is not asked", async () => {
    const { looksBy } = await module("/src/data/looks.ts");
    const [asked, answer] = [[], []];
    const ask = (question) => {
      asked.push(question.what ?? question.below ?? "");
      return new Promise((resolve, reject) => answer.push({ resolve, reject }));
    };
    const looks = looksBy({ ask });
    const [first, unwanted, last] = [new AbortController(), new AbortController(), new AbortController()];
    const state = looks.state("now", first.signal);
    const log = looks.log(unwanted.signal);
    const names = looks.names("src", last.signal);
    await Promise.resolve();
    assert.deepEqual(asked, ["state"]);
    unwanted.abort();
    answer[0].reject(new Error("refused"));
    await assert.rejects(state, /refused/);
    await assert.rejects(log, { name: "AbortError" });
    await new Promise((next) => setImmediate(next));
    assert.deepEqual(asked, ["state", "src"]);
    const file = (path, more) => ({ path, kind: "file", ignored: false, ...more });
    answer[1].resolve({
      names: [file("b"), file("c", { kind: "socket" }), file("a", { ignored: true }), file("z", { kind: "directory" })],
      more: false,
    });
    const { entries } = await names;
    assert.deepEqual(
      entries.map(({ path, kind, isIgnored }) => `${path} ${kind} ${isIgnored}`),
      ["z directory false", "a file true", "b file false", "c other false"],
    );
  });

  test("a busy machine is asked again, a few times and while it is wanted", async () => {
    const { looksBy } = await module("/src/data/looks.ts");
    const { LookRefused } = await module("@ensemble/client/looks");
    let asked = 0;
    let refusals = 2;
    const ask = async () => {
      asked += 1;
      if (refusals-- > 0) throw new LookRefused("busy", "It is busy.");
      return { commits: [] };
    };
    const looks = looksBy({ ask }, [1, 1, 1]);
    const stop = new AbortController();
    assert.deepEqual(await looks.log(stop.signal), []);
    assert.equal(asked, 3);
    [asked, refusals] = [0, 9];
    await assert.rejects(looks.log(stop.signal), { code: "busy" });
    assert.equal(asked, 4);
    const unwanted = looksBy({ ask }, [60_000]);
    [asked, refusals] = [0, 9];
    const log = unwanted.log(stop.signal);
    stop.abort();
    await assert.rejects(log, { name: "AbortError" });
    assert.ok(asked <= 1);
  });

  test("a patch that is cut or hostile has no line that is not there", async () => {
    const { readPatch } = await module("/src/looks/patch.ts");
    const cut = readPatch(DIFF.slice(0, DIFF.indexOf("// Without")));
    assert.deepEqual(
      cut.lines.map(({ sign, now }) => [sign, now]),
      [
        ["…", undefined],
        [" ", 10],
        ["-", 11],
        ["+", 11],
      ],
    );
    assert.deepEqual(readPatch("+++ b/x\n--- a/x\n+not in a hunk\n").lines, []);
    assert.equal(readPatch("@@ -1,999999999 +1,999999999 @@\n").lines.length, 0);
    const added = readPatch(
      "new file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\n",
    );
    assert.deepEqual(added, { lines: [{ sign: "+", text: "one", after: 1, now: 1 }], isNew: true, isBinary: false });
  });
});
