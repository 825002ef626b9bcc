// Parts of the app that need no browser.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { module } from "./shared.mjs";

describe("parts", { timeout: 10 * 60_000 }, () => {
  const part = (path) => module(`/src/${path}`);

  test("a model of which only the id is known has the name that people use", async () => {
    const { modelName } = await part("session/model-name.ts");
    for (const [id, name] of [
      ["claude-opus-4-8[1m]", "Opus 4.8 (1M)"],
      ["claude-sonnet-4-5", "Sonnet 4.5"],
      ["claude-haiku-4-5-20251001", "Haiku 4.5"],
      ["claude-sonnet-5", "Sonnet 5"],
      ["claude-opus-4-20250514", "Opus 4"],
      ["gpt-5.2-codex", "gpt-5.2-codex"],
      ["claude", "claude"],
      ["", ""],
    ])
      assert.equal(modelName(id), name);
  });

  test("Markdown is split in a time that does not run away", async () => {
    const { blocksOf } = await part("text/blocks.ts");
    const quick = (text) => {
      // Of the processor, which others need, too.
      const begun = process.cpuUsage();
      const found = blocksOf(text);
      const took = process.cpuUsage(begun).user / 1_000;
      assert.ok(took < 3_000, `${text.slice(0, 20)} took ${took} ms`);
      return found;
    };
    for (const one of ["**a_", "**a _", "_a", "**a*b_", "[![a](b)]("]) {
      assert.equal(quick(one.repeat(10_000)), undefined, one);
      // As much as is split, in one paragraph and in many.
      assert.ok(quick(one.repeat(300)), one);
      quick(`${one.repeat(300)}\n\n`.repeat(20));
    }
    assert.equal(blocksOf("A **bold** word\n\n- one\n- two").tokens.length, 3);
  });

  test("of a text that grows only the end is split again, and it is the same", async () => {
    const { blocksOf, more } = await part("text/blocks.ts");
    const text = `# Head\n\n${"A *word* and `code`.\n\n- one\n- two\n\n".repeat(30)}\`\`\`js\nlet a = 1;\n\nlet b;\n\`\`\`\n\nThe end\r\nof it.`;
    let found;
    for (let end = 0; end <= text.length; end += 7) {
      const next = more(text.slice(0, end), found);
      if (found && found.tokens.length > 4) assert.equal(next.tokens[0], found.tokens[0], "the first block is not made again");
      found = next;
    }
    found = more(text, found);
    assert.deepEqual(
      found.tokens.map(({ raw, type }) => [type, raw]),
      [...blocksOf(text).tokens].map(({ raw, type }) => [type, raw]),
    );
  });

  test("a device has its signed name, and no other one that the server gives", async () => {
    const { deviceName } = await part("base/words.ts");
    assert.equal(deviceName({ name: "Laptop", hasOtherName: false }, "A browser"), "Laptop");
    assert.equal(deviceName({ name: null, hasOtherName: true }, "A browser"), "The server gives another name");
    assert.equal(deviceName({ name: null, hasOtherName: false }, "A browser"), "A browser");
  });

  test("nothing in the text of an error is hidden", async () => {
    const { textOf } = await part("data/failure.ts");
    const { whyOf } = await part("data/connection.ts");
    const { Problem } = await module("@ensemble/client");
    const detail = "No: \u202Egnp.exe\u0000 \u001b]52;c;aGk=\u0007";
    const shown = "No: \\u{202e}gnp.exe\\u{0} \\u{1b}]52;c;aGk=\\u{7}";
    const problem = new Problem({ title: "Refused", detail }, 403, undefined);
    assert.deepEqual([textOf(problem), textOf(new Error(detail)), whyOf(problem).todo], [shown, shown, shown]);
  });

  test("the secret of a linking leaves the address of the page", async (context) => {
    const { location, history } = globalThis;
    context.after(() => Object.assign(globalThis, { location, history }));
    const { takeLinkAddress, linkAddress, linkPerson } = await part("base/link-address.ts");
    const href = "https://ensemble.example/link#v1.id.secret";
    const replaced = [];
    globalThis.location = new URL("https://ensemble.example/sessions/1#end");
    globalThis.history = { replaceState: (_state, _title, to) => replaced.push(to) };
    takeLinkAddress();
    assert.deepEqual([linkAddress(), replaced], ["", []]);
    globalThis.location = new URL(href);
    takeLinkAddress();
    assert.deepEqual([linkAddress(), linkPerson(), replaced], [href, undefined, ["/link"]]);
    // A program of this computer adds whose account it is.
    for (const name of ["", "Anna%20O.%27Neill"]) {
      globalThis.location = new URL(`${href}.${name}`);
      takeLinkAddress();
      assert.deepEqual([linkAddress(), linkPerson()], [href, name]);
    }
  });

  test("three of the recovery words are asked for, and only they are right", async () => {
    const { placesOf, areRight } = await part("welcome/asked-words.tsx");
    const words = Array.from({ length: 24 }, (_, at) => `word${at}`);
    const places = placesOf(24);
    assert.equal(new Set(places).size, 3);
    assert.ok(places.every((place) => place >= 0 && place < 24));
    const typed = places.map((place) => words[place]);
    assert.equal(
      areRight(
        words,
        places,
        typed.map((word) => ` ${word.toUpperCase()} `),
      ),
      true,
    );
    assert.equal(areRight(words, places, ["", "", ""]), false);
    assert.equal(areRight(words, places, [typed[0], typed[1], "word"]), false);
    const { readFile } = await import("node:fs/promises");
    assert.ok(!(await readFile(join(import.meta.dirname, "../../src/welcome/words.tsx"), "utf8")).includes("clipboard"));
  });

  test("a stream that breaks is followed again, until trying changes nothing", async () => {
    const { keepTrying } = await part("data/keep-trying.ts");
    const { Distrust, Problem } = await module("@ensemble/client");
    const problem = (status) => new Problem({ title: "No" }, status, undefined);
    const pauses = { first: 1, longest: 2 };
    for (const final of [new Distrust("lies"), problem(403), problem(404)]) {
      const errors = [new Error("a broken message"), problem(500), final];
      const received = [];
      await keepTrying(
        () => Promise.reject(errors[received.length]),
        (error) => received.push(error),
        new AbortController().signal,
        pauses,
      );
      assert.deepEqual(received, errors);
    }
    const stop = new AbortController();
    let tries = 0;
    await keepTrying(
      () => Promise.reject(new Error("again")),
      () => (++tries === 3 ? stop.abort() : undefined),
      stop.signal,
      pauses,
    );
    assert.equal(tries, 3);
    await keepTrying(
      () => Promise.resolve(),
      () => assert.fail("it went well"),
      new AbortController().signal,
      pauses,
    );
  });

  test("what only its owner can answer does not need who reads it", async () => {
    const { stateOf } = await part("data/row.ts");
    const row = { attention: "permission", online: true, hosted: true, ended: false, thinking: true };
    const states = ["owner", "admin", "edit", "view"].map((accessLevel) => stateOf({ ...row, accessLevel }));
    assert.deepEqual(states, ["ask", "ask", "ask", "waits"]);
    assert.equal(stateOf({ ...row, accessLevel: "view", online: false }), "away");
  });

  test("what a link has no key for is left out of the items, and is said once", async () => {
    const { withoutLater } = await part("data/later.ts");
    const { KeyRing } = await module("@ensemble/client/seal");
    const ring = KeyRing.generate();
    const why = await ring.cipher(2).then(
      () => undefined,
      ({ message }) => message,
    );
    const note = (kind, why) => ({ shown: { type: "note", note: { kind, why } } });
    const text = { shown: { type: "text" } };
    const other = note("not_signed", "not signed by the session's machine");
    assert.deepEqual(withoutLater([text, note("not_signed", why), other, note("unreadable", why)]), {
      items: [text, other],
      hasLater: true,
    });
    assert.deepEqual(withoutLater([text, other]), { items: [text, other], hasLater: false });
  });

  test("the owner reads that a link is older than the session's key", async () => {
    const { aboutLink } = await part("share/about-link.ts");
    const link = { expiresAt: undefined, maxUses: 10, uses: 1, isOld: false };
    const stands = "There is a link: opened 1 of 10 times, with no end date.";
    assert.equal(aboutLink(link), stands);
    assert.equal(
      aboutLink({ ...link, isOld: true }),
      `${stands} It does not show what is written from now on. Make a new link.`,
    );
  });

  test("who lost a session that was open reads so, and what may heal stays as it is", async () => {
    const { failedOf } = await part("data/failed.ts");
    const { NoAnswer, Problem } = await module("@ensemble/client");
    const gone = new Problem({ title: "Not found", code: "NOT_FOUND" }, 404, undefined);
    const view = { isOpen: true, row: {}, may: { own: false } };
    assert.deepEqual(failedOf(gone, view), { error: "You no longer have access to this session.", isGone: true });
    assert.deepEqual(failedOf(gone, { ...view, may: { own: true } }), { error: "This session was deleted.", isGone: true });
    assert.deepEqual(failedOf(gone, { ...view, isOpen: false }), {
      error: "There is no session at this address, or it is not shared with you.",
    });
    assert.equal(failedOf(new NoAnswer("unreachable", "No connection", false), view), undefined);
  });

  test("signing out reaches the other tabs", async () => {
    const { tellSignedOut, whenSignedOut } = await part("base/signed-out.ts");
    const other = new BroadcastChannel("ensemble signed out");
    const events = [];
    const next = (event) => new Promise((resolve) => events.push([event, resolve]));
    const happened = (event) => events.find(([name]) => name === event)[1](event);
    const [here, there] = [next("here"), next("there")];
    const stop = whenSignedOut(() => happened("here"));
    other.onmessage = () => happened("there");
    tellSignedOut();
    assert.equal(await Promise.race([here, there]), "there", "a tab does not hear itself");
    other.postMessage("signed out");
    assert.equal(await here, "here");
    other.close();
    stop();
  });

  test("a prompt that waited stands where its turn begins, and answers are shown", async () => {
    const { inOrder, answerOf, answersIn } = await part("session/order.ts");
    const item = (id, shown, localId = "", author = { kind: "host" }) => ({ id, seq: id, localId, author, shown });
    const person = { kind: "person", user: "me", key: "k" };
    const prompt = (id, localId) => item(id, { type: "prompt" }, localId, person);
    const turn = (id, promptId, state = "started") => item(id, { type: "turn", turn: { turnId: `t${id}`, state, promptId } });
    const text = (id) => item(id, { type: "text" });
    const items = [prompt(1, "a"), turn(2, "a"), prompt(3, "b"), text(4), turn(5, "a", "ended"), turn(6, "b"), text(7)];
    assert.deepEqual(
      inOrder(items).map(({ id }) => id),
      [1, 2, 4, 5, 3, 6, 7],
    );
    // One that still waits, and one whose turn is not loaded, stay.
    assert.deepEqual(
      inOrder(items.slice(0, 5)).map(({ id }) => id),
      [1, 2, 3, 4, 5],
    );

    const card = item(8, {
      type: "card",
      card: { requestId: "q", resolved: { requestId: "q", outcome: "answered", by: "me" } },
    });
    const answer = { requestId: "q", answers: { one: ["yes"] } };
    const by = (author) => answerOf(card, answersIn([item(9, { type: "answer", answer }, "c", author)]));
    assert.deepEqual([by(person), by({ ...person, user: "other" })], [answer, undefined]);
  });
});
