// Contents that try to do something: HTML, Markdown, addresses, colours of terminals, directions of writing, huge texts. Each one comes
// in every place where a session shows text of others, and nothing must happen but text.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { accessible } from "../browser.mjs";
import { visitor } from "./shared.mjs";

const HOSTILE = {
  script: "<script>document.body.dataset.owned = 1</script>",
  handler: '<img src=x onerror="document.body.dataset.owned = 1"><svg onload="document.body.dataset.owned = 1">',
  frame:
    '<iframe src="https://evil.example/"></iframe><object data="https://evil.example/"></object><link rel=stylesheet href=https://evil.example/x.css>',
  form: '<form action="https://evil.example/"><input name=a autofocus><button>Sign in</button></form>',
  style: '<style>body { display: none }</style><div style="position:fixed;inset:0">x</div>',
  image: "![x](https://evil.example/pixel.png) ![y](data:image/svg+xml,<svg/onload=alert(1)>)",
  links:
    "[a](javascript:document.body.dataset.owned=1) [b](data:text/html,<script>1</script>) [c](JaVaScRiPt:1) [d](vbscript:x) [e](file:///etc/passwd) " +
    "<javascript:1> [f](\tjavascript:1) [g]( &#106;avascript:1) [h](//evil.example) [i](/v1/auth)",
  reference: '[x][y]\n\n[y]: javascript:document.body.dataset.owned=1 "title"',
  template: "{{constructor.constructor('document.body.dataset.owned=1')()}} ${document.body.dataset.owned = 1}",
  bidi: "rm \u202Egnp.exe\u202C \u2066hidden\u2069 \u200F",
  control:
    "\u0000\u0007\u001b]8;;javascript:document.body.dataset.owned=1\u0007click\u001b]8;;\u0007\u001b[2J\u001b[1;1H\u001b[31mred\u001b[0m\r\u009b31mx",
  osc: "\u001b]0;title\u0007\u001b]52;c;aGk=\u0007\u001bPq#0\u001b\\after",
  quotes: ">".repeat(3_000),
  brackets: "[".repeat(5_000),
  stars: "*".repeat(20_000),
  emphasis: "**a_".repeat(25_000),
  line: "x".repeat(1_000_000),
  lines: "y\n".repeat(100_000),
  lists: Array.from({ length: 200 }, (_, deep) => `${"  ".repeat(deep)}- x`).join("\n"),
  table: `|${"a|".repeat(500)}\n|${"-|".repeat(500)}\n|${"b|".repeat(500)}`,
  prototype: "__proto__ constructor toString [__proto__][x]",
  surrogate: "\ud800 lone \udfff",
};

function bodies(text) {
  const short = text.slice(0, 300_000);
  const options = [{ optionId: "1", name: short.slice(0, 500), kind: "allow_once" }];
  return [
    {
      type: "prompt",
      text: short,
      when: "next",
      attachments: [{ type: "image", mimeType: "image/svg+xml", data: "PHN2Zz4=" }],
    },
    { type: "turn", turnId: "u", state: "started", cause: "prompt" },
    { type: "text", turnId: "u", part: 0, text: short },
    { type: "thought", turnId: "u", part: 1, text: short },
    {
      type: "tool_call",
      toolCallId: "a",
      turnId: "u",
      title: short,
      kind: text.slice(0, 30),
      status: text.slice(0, 30),
      locations: [{ path: short }],
      content: [
        { type: "content", content: { type: "text", text: short } },
        { type: "terminal", terminalId: "x", output: short },
        { type: "diff", path: short.slice(0, 4_000), oldText: short, newText: `${short}!` },
        { type: text.slice(0, 30) },
      ],
    },
    { type: "error", code: text.slice(0, 30), text: short },
    { type: "plan", entries: [{ content: short, priority: "high", status: text.slice(0, 30) }] },
    {
      type: "state",
      phase: text.slice(0, 30),
      agent: text.slice(0, 100),
      mode: text.slice(0, 100),
      model: text.slice(0, 100),
      directory: short.slice(0, 4_000),
      keyEpoch: 1,
      models: [{ id: text.slice(0, 100), name: text.slice(0, 100) }],
      modes: [{ id: "ask", name: text.slice(0, 100) }],
    },
    { type: text.slice(0, 30) },
    {
      type: "permission",
      requestId: "r0",
      title: short,
      detail: short.slice(0, 262_144),
      options,
      content: [{ type: "diff", path: "a", newText: short }],
    },
    { type: "resolved", requestId: "r0", outcome: "withdrawn", reason: short },
    { type: "permission", requestId: "r1", title: short, detail: short.slice(0, 262_144), options },
    {
      type: "question",
      requestId: "r2",
      questions: [
        { id: "q", text: short, header: short, options: [{ label: short.slice(0, 200), description: short.slice(0, 200) }] },
      ],
    },
  ];
}

/** Opens what is folded, the part that is drawn, and what is drawn then. */
const openAll = (page) =>
  page.evaluate(async () => {
    for (let rounds = 20; rounds > 0; rounds--) {
      const closed = document.querySelectorAll("details:not([open]) > summary");
      if (closed.length === 0) return;
      for (const one of closed) one.click();
      await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    }
  });

describe("hostile contents", () => {
  let me;
  before(async () => {
    me = await visitor();
  });
  after(() => me?.context.close());
  /** Fails when something has happened that must not, and forgets it for the next test. */
  const checked = () => assert.deepEqual(me.faults.splice(0), []);

  for (const [name, text] of Object.entries(HOSTILE)) {
    test(name, async () => {
      const { page } = me;
      const frames = [{ turnId: "u", part: 7, offset: 0, text: text.slice(0, 10_000) }];
      await me.show({ bodies: bodies(text), frames, title: text });
      await openAll(page);
      const found = await page.evaluate(() => ({
        owned: document.body.dataset.owned,
        elements: [
          ...document.querySelectorAll(
            "iframe, object, embed, script:not([src]), style, form:not(.composer):not(.request), link[rel=stylesheet]:not([href^='/assets/'])",
          ),
        ].length,
        images: [...document.querySelectorAll("img")].map((one) => one.src),
        links: [...document.querySelectorAll("a")].map((one) => one.getAttribute("href")),
        inline: [...document.querySelectorAll("*")].filter((one) =>
          [...one.attributes].some(({ name: attribute }) => /^on/i.test(attribute)),
        ).length,
        hidden: /[\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText),
        wide: document.documentElement.scrollWidth > innerWidth,
        pieces: document.body.innerText.length,
      }));
      const { links, images, pieces, ...rest } = found;
      assert.deepEqual(rest, { owned: undefined, elements: 0, inline: 0, hidden: false, wide: false });
      assert.deepEqual(images, []);
      for (const href of links) assert.match(href, /^(?:https?:\/\/|mailto:|\/$)/);
      assert.ok(pieces > 100, "something is shown");
      checked();
    });
  }

  test("what a session shows is accessible, and its drawing breaks no rule", async () => {
    for (const show of ["none", "permission", "edit", "question"]) {
      await me.show(undefined, `?show=${show}`);
      await openAll(me.page);
      await accessible(me.page, show);
      checked();
    }
  });
});
