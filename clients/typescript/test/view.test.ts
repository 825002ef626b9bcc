// What a screen shows after messages and frames, good ones and others: the stories of crates/protocol/src/transcript/view/tests.rs.

import assert from "node:assert/strict";
import test from "node:test";
import { View, type Author, type Changed, type Incoming, type Message, type Shown } from "@ensemble/client/transcript";

const FIRST = 2 ** 32;
const ann: Author = { kind: "person", user: "u", key: "k" };
const host: Author = { kind: "host" };
type Content = Message["content"];

/** A view and the numbers of its next messages. */
class Session {
  seq = 0;
  n = 0;
  /** The version of the list that messages name. */
  list = 1;
  constructor(readonly view = new View()) {}

  message(author: Author, localId: string, n: number | undefined, content: Content): Changed {
    this.seq++;
    return this.view.message(incoming(this.seq, author, localId, n, content, this.list));
  }

  host(content: Content): Changed {
    this.n++;
    return this.message(host, `h${this.n}`, this.n, content);
  }

  frame(turnId: string, part: number, offset: number, text: string): boolean {
    return this.view.frame({ turnId, part, offset, text }).live;
  }

  growing(): [number, string][] {
    return this.view.growing().map(([part, { text }]) => [part, text]);
  }

  last(): Shown {
    const item = this.view.items.at(-1);
    assert.ok(item);
    return item.shown;
  }
}

function incoming(
  seq: number,
  author: Author,
  localId: string,
  n: number | undefined,
  content: Content,
  version = 1,
): Incoming {
  const at = new Date(seq * 1_000).toISOString();
  return { seq, author, digest: `digest-${seq}`, message: { localId, at, list: { version, digest: "" }, n, content } };
}

const turn = (state: "started" | "ended", more = {}): Content => ({
  type: "turn",
  turnId: "t",
  state,
  cause: "prompt",
  ...more,
});
const text = (part: number, text: string): Content => ({ type: "text", turnId: "t", part, text, interrupted: false });
const prompt = (text: string): Content => ({ type: "prompt", text, attachments: [], when: "next" });
const permission = (requestId: string): Content => ({
  type: "permission",
  requestId,
  title: "Run a command",
  detail: "ls",
  content: [],
  options: [{ optionId: "allow", name: "Allow", kind: "allow_once" }],
});
const receipt = (commandId: string, outcome: "queued" | "done" | "rejected"): Content => ({
  type: "receipt",
  commandId,
  key: "k",
  outcome,
  code: "busy",
});
const tool = (status: "in_progress" | "completed", title?: string): Content => ({
  type: "tool_call",
  toolCallId: "c",
  turnId: "t",
  part: 7,
  status,
  ...(title !== undefined && { title, kind: "execute" as const }),
});
const resolved = (requestId: string, outcome: "selected" | "withdrawn"): Content => ({ type: "resolved", requestId, outcome });
const taken = (shown: Shown) => ("taken" in shown ? shown.taken.is : undefined);
const note = (shown: Shown) => (shown.type === "note" ? shown.note.kind : undefined);

test("a command is not taken until its receipt comes", () => {
  const session = new Session();
  session.message(ann, "p1", undefined, prompt("go"));
  assert.equal(taken(session.last()), "not_yet");
  session.host(receipt("other", "done"));
  assert.equal(taken(session.last()), "not_yet");
  assert.deepEqual(session.host(receipt("p1", "queued")).items, [FIRST]);
  assert.equal(taken(session.last()), "queued");
  session.host(receipt("p1", "done"));
  session.host(receipt("p1", "rejected"));
  assert.equal(taken(session.last()), "done", "the first end counts");
  assert.deepEqual(session.view.taken("k", "p1"), { is: "done" });
  session.message(ann, "p2", undefined, prompt("more"));
  session.host(receipt("p2", "rejected"));
  assert.deepEqual(session.view.taken("k", "p2"), { is: "rejected", code: "busy", text: undefined });
  session.message(ann, "p2", undefined, prompt("more"));
  assert.equal(note(session.last()), "repeated_command");
});

test("a card is open until it is resolved, and opens once", () => {
  const session = new Session();
  session.host(permission("r1"));
  assert.deepEqual(
    session.view.open.map(({ digest }) => digest),
    ["digest-1"],
  );
  const before = session.view.item(FIRST);
  session.host(permission("r1"));
  assert.equal(session.view.open.length, 1, "an id is never used again");
  assert.deepEqual(session.host(resolved("r1", "selected")).items, [FIRST]);
  session.host(resolved("r1", "withdrawn"));
  const item = session.view.item(FIRST);
  assert.ok(item?.shown.type === "card" && item.shown.card.resolved?.outcome === "selected", "the first counts");
  assert.ok(before?.shown.type === "card" && !before.shown.card.resolved, "an item is never changed in place");
  assert.equal(session.view.open.length, 0);
});

test("an open card is kept although its item is dropped", () => {
  const session = new Session(new View({ items: 5, size: 1 << 20 }));
  session.host(permission("r1"));
  for (let part = 0; part < 20; part++) session.host(text(part, "x"));
  assert.deepEqual([session.view.items.length, session.view.open.length], [5, 1]);
  assert.equal(session.view.item(FIRST), undefined);
  assert.equal(session.view.item(FIRST + 20)?.id, FIRST + 20);
});

test("later messages of a tool amend it", () => {
  const session = new Session();
  session.host(tool("in_progress", "ls"));
  assert.deepEqual(session.host(tool("completed")).items, [FIRST]);
  const last = session.last();
  assert.ok(last.type === "tool");
  assert.deepEqual([last.call.title, last.call.status, session.view.items.length], ["ls", "completed", 1]);
});

test("what is not by its writer is a note", () => {
  const session = new Session();
  session.message(ann, "x", 1, permission("r1"));
  assert.ok(note(session.last()) === "not_signed" && session.view.open.length === 0, "a person writes no cards");
  session.message(host, "x", 1, prompt("go"));
  assert.equal(note(session.last()), "not_signed", "the machine writes no prompts");
  for (const content of [permission("r2"), prompt("go"), turn("started")]) {
    session.message({ kind: "unknown", why: "not signed by a device of Ann" }, "x", 1, content);
    assert.ok(note(session.last()) === "not_signed" && session.view.open.length === 0);
  }
  session.frame("t", 0, 0, "x");
  assert.deepEqual(session.growing(), []);
  session.host({ type: "newer", name: "hologram" });
  assert.deepEqual(session.last(), { type: "newer", name: "hologram" });
});

/** The same person, with a device that list 3 removed. */
const removed: Author = { ...ann, removedIn: 3 };

/** The prompts that are shown: `true` for one that counts as its owner's. */
const prompts = (view: View): [string, boolean][] =>
  view.items.flatMap(({ shown }): [string, boolean][] => {
    if (shown.type === "prompt") return [[shown.prompt.text, true]];
    return shown.type === "note" && shown.note.kind === "removed" ? [[shown.note.text, false]] : [];
  });

test("a removed device speaks until the machine knows of its removal", () => {
  const session = new Session();
  for (const [list, word] of [
    [1, "a"],
    [2, "b"],
    [3, "c"],
    [4, "d"],
    [2, "e"],
  ] as const) {
    session.list = list;
    session.host(text(0, "written"));
    // What the device itself names says nothing.
    session.list = 1;
    session.message(removed, word, undefined, prompt(word));
  }
  const shown = [
    ["a", true],
    ["b", true],
    ["c", false],
    ["d", false],
    ["e", false],
  ];
  assert.deepEqual(prompts(session.view), shown, "an older list is no way back");
  assert.deepEqual(session.last(), { type: "note", note: { kind: "removed", user: "u", text: "e" } });
  session.message(removed, "f", undefined, { type: "control", action: "stop" });
  assert.deepEqual(session.last(), { type: "note", note: { kind: "removed", user: "u", text: "" } });
  session.host(receipt("d", "done"));
  assert.deepEqual(
    [prompts(session.view), session.view.taken("k", "d")],
    [[...shown, ["", false]], undefined],
    "none of it was done",
  );
});

test("before the first message of the machine that is loaded, that one decides", () => {
  for (const [list, isOwners] of [
    [2, true],
    [3, false],
    [4, false],
  ] as const) {
    const session = new Session();
    session.n = 40;
    session.message(removed, "p", undefined, prompt("loaded first"));
    session.message(ann, "x", undefined, prompt("of a listed device"));
    session.list = list;
    const changed = session.host(text(0, "written"));
    assert.deepEqual(
      prompts(session.view),
      [
        ["loaded first", isOwners],
        ["of a listed device", true],
      ],
      `list ${list}`,
    );
    assert.equal(changed.items.includes(FIRST), !isOwners);
    // The removed device's message is no command, so its id is free.
    session.message(ann, "p", undefined, prompt("again"));
    assert.equal(session.last().type === "prompt", !isOwners);
  }
  // The machine has named no list before its very first message.
  const session = new Session();
  session.message(removed, "p", undefined, prompt("at the beginning"));
  session.list = 3;
  session.host(text(0, "written"));
  assert.deepEqual(prompts(session.view), [["at the beginning", true]]);
});

test("of older parts the nearest message of the machine decides", () => {
  const says = (seq: number, word: string): Incoming => incoming(seq, removed, word, undefined, prompt(word));
  const names = (seq: number, list: number): Incoming => incoming(seq, host, `h${seq}`, seq, text(0, "written"), list);
  const opened = (...messages: Incoming[]): View => {
    const view = new View();
    for (const message of messages) view.message(message);
    return view;
  };
  const view = opened(names(100, 3));
  view.older([says(30, "first"), names(31, 2), says(32, "second"), names(33, 3), says(34, "third")]);
  assert.deepEqual(prompts(view), [
    ["first", true],
    ["second", true],
    ["third", false],
  ]);
  // A part without a message of the machine.
  view.older([says(20, "zeroth")]);
  assert.deepEqual(prompts(view)[0], ["zeroth", true], "the next message of the machine names the list 2");

  const late = opened(names(100, 3));
  late.older([says(20, "zeroth")]);
  assert.deepEqual(prompts(late), [["zeroth", false]]);

  const silent = opened(says(100, "last"));
  assert.deepEqual(prompts(silent), [["last", true]], "nothing is known of the machine");
  const changed = silent.older([names(31, 3)]);
  assert.deepEqual([prompts(silent), changed.items.includes(FIRST)], [[["last", false]], true]);
  silent.message(says(101, "later"));
  assert.deepEqual(prompts(silent), [
    ["last", false],
    ["later", false],
  ]);
});

test("parts that are loaded one after the other show what the whole shows", () => {
  const says = (seq: number, word: string): Incoming => incoming(seq, removed, word, undefined, prompt(word));
  let n = 40;
  const names = (seq: number, list: number, content: Content = text(0, "written")): Incoming =>
    incoming(seq, host, `h${seq}`, ++n, content, list);
  const opened = (messages: Incoming[]): View => {
    const view = new View();
    for (const message of messages) view.message(message);
    return view;
  };
  const all = [
    [names(10, 2)],
    [says(11, "first"), says(12, "second"), names(13, 3, receipt("first", "queued"))],
    [names(14, 3, receipt("second", "rejected")), names(15, 3, turn("started", { promptId: "first" })), says(16, "third")],
    [says(17, "fourth"), names(18, 2)],
  ];
  const whole = opened(all.flat());
  const ids = (view: View): unknown[] => view.items.map(({ seq, localId, at, shown }) => [seq, localId, at, shown]);
  assert.deepEqual(prompts(whole), [
    ["first", true],
    ["second", true],
    ["third", false],
    ["fourth", false],
  ]);
  for (let cuts = 0; cuts < 8; cuts++) {
    const parts = all
      .slice(1)
      .reduce<Incoming[][]>(
        (made, part, at) => ((cuts >> at) & 1 ? [...made, part] : [...made.slice(0, -1), [...(made.at(-1) ?? []), ...part]]),
        all.slice(0, 1),
      );
    const view = opened(parts.pop() ?? []);
    for (const part of parts.reverse()) view.older(part);
    assert.deepEqual(ids(view), ids(whole), `cuts ${cuts}`);
    for (const word of ["first", "second"])
      assert.deepEqual(view.taken("k", word), whole.taken("k", word), `cuts ${cuts}: ${word}`);
  }
  // A server that keeps back what the machine has written between two parts.
  const first = names(10, 2);
  names(11, 3);
  const kept = opened([says(12, "late"), names(13, 3)]);
  kept.older([first]);
  assert.deepEqual(prompts(kept), [["late", false]]);
  // What is judged again stays within the bounds: its whole size counts until then.
  const small = new View({ items: 100, size: 3_000 });
  small.message(says(12, "x".repeat(2_000)));
  small.message(names(13, 3));
  assert.deepEqual(prompts(small), [["x".repeat(2_000), false]]);
  small.message(names(14, 3, text(1, "y".repeat(1_500))));
  assert.deepEqual(prompts(small), []);
});

test("missing, repeated and unreadable messages show", () => {
  const session = new Session();
  session.message(host, "a", 41, text(0, "loaded from the middle"));
  session.message(host, "b", 42, text(1, "next"));
  assert.equal(session.view.items.length, 2);
  session.message(host, "c", 45, text(2, "later"));
  assert.deepEqual(session.view.items[2]?.shown, { type: "note", note: { kind: "missing", from: 43, to: 44 } });
  session.message(host, "d", 44, permission("r"));
  assert.deepEqual(session.last(), { type: "note", note: { kind: "repeated", n: 44 } });
  assert.equal(session.view.open.length, 0);
  session.message(host, "e", undefined, permission("r"));
  assert.equal(note(session.last()), "unreadable");
  session.view.message({ seq: 99, author: host, digest: "", message: { unreadable: "it is no JSON" } });
  assert.equal(note(session.last()), "unreadable");
  const count = session.view.items.length;
  const again = session.view.message({ seq: 99, author: ann, digest: "", message: { unreadable: "x" } });
  assert.deepEqual(again, { items: [], state: false, plan: false, live: false });
  assert.equal(session.view.items.length, count, "a number of the server that was there is ignored");
});

test("frames show the end of a text until it is whole", () => {
  const session = new Session();
  assert.ok(!session.frame("t", 0, 0, "early"), "no turn runs");
  session.host(turn("started"));
  assert.ok(session.frame("t", 0, 0, "hel"));
  assert.ok(session.frame("t", 0, 0, "hello"), "it repeats what is known");
  assert.ok(!session.frame("t", 0, 0, "hell"), "late");
  assert.ok(session.frame("t", 0, 3, "lo wörld"));
  assert.ok(session.frame("t", 0, 100, "after a gap"));
  assert.ok(session.frame("t", 1, 5, "end"), "the beginning is missing");
  assert.ok(!session.frame("u", 0, 0, "of another turn"));
  assert.deepEqual(session.growing(), [
    [0, "hello wörld…after a gap"],
    [1, "…end"],
  ]);
  session.host(text(0, "hello wörld and more"));
  assert.ok(!session.frame("t", 0, 200, "late"), "it never outlives the whole text");
  assert.deepEqual(session.growing(), [[1, "…end"]]);
  assert.ok(session.frame("t", 7, 0, "output"));
  session.host(tool("completed", "ls"));
  assert.deepEqual(session.growing(), [[1, "…end"]]);
  session.host(turn("ended"));
  assert.deepEqual(session.growing(), []);
  assert.ok(!session.frame("t", 3, 0, "late"));
});

test("frames never show what was not written", () => {
  const whole = "the quick brown fox jumps över the läzy dog 😀 and on";
  const bytes = new TextEncoder().encode(whole);
  const slice = (from: number, to: number) => new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(from, to));
  let random = 7;
  const next = (below: number) => (random = (random * 16_807) % 2_147_483_647) % below;
  for (let round = 0; round < 500; round++) {
    const session = new Session();
    session.host(turn("started"));
    let newest = 0;
    for (let frame = 0; frame < 12; frame++) {
      const from = next(bytes.length);
      const to = Math.min(bytes.length, from + 1 + next(12));
      try {
        session.frame("t", 0, from, slice(from, to));
        newest = Math.max(newest, to);
      } catch {
        // It would begin or end inside of a character, and no host sends such a frame.
      }
    }
    for (const [, shown] of session.growing()) {
      const pieces = shown.split("…");
      assert.ok(
        pieces.every((piece) => whole.includes(piece)),
        shown,
      );
      assert.ok(slice(0, newest).endsWith(pieces.at(-1) ?? "?"), shown);
    }
  }
});

test("a new state and a new plan replace the old ones, and keep what can be chosen", () => {
  const session = new Session();
  const state = (phase: string, modes: { id: string; name: string }[] = []): Content => ({
    type: "state",
    phase,
    agent: "claude",
    mode: "ask",
    modes,
    models: [],
    commands: [],
    steers: false,
    stillRunning: [],
    directory: "/w",
    queue: [],
    access: [],
    keyEpoch: 1,
    does: [],
  });
  session.host(state("starting", [{ id: "ask", name: "Ask" }]));
  assert.ok(session.host(state("working")).state);
  assert.deepEqual([session.view.state?.phase, session.view.state?.modes.length], ["working", 1]);
  assert.ok(session.host({ type: "plan", entries: [] }).plan);
  assert.deepEqual([session.view.plan?.entries, session.view.items.length], [[], 0]);
});

test("a long session is kept within its bounds", () => {
  const session = new Session(new View({ items: 100, size: 40_000 }));
  for (let number = 0; number < 500; number++) {
    session.message(ann, String(number), undefined, prompt("x".repeat(300)));
    session.host({ type: "tool_call", toolCallId: String(number), turnId: "t" });
    session.host(permission(`r${number}`));
  }
  const size = session.view.items.reduce((sum, { shown }) => sum + JSON.stringify(shown).length, 0);
  assert.ok(session.view.items.length <= 100 && size < 80_000, `${session.view.items.length} items, ${size}`);
  assert.equal(session.view.open.length, 99);
});

test("older messages come in front with what was said of them later", () => {
  const older = [
    incoming(1, ann, "c", undefined, prompt("go")),
    incoming(2, host, "h1", 1, permission("r1")),
    incoming(3, host, "h2", 2, permission("r2")),
  ];
  const view = new View({ items: 2, size: 1 << 20 });
  view.message(incoming(4, host, "h3", 3, receipt("c", "done")));
  view.message(incoming(5, host, "h4", 4, resolved("r1", "selected")));
  view.message(incoming(6, host, "h5", 5, text(0, "new")));
  view.older(older);
  assert.deepEqual(
    view.items.map(({ id, seq }) => [id, seq]),
    [
      [FIRST - 3, 1],
      [FIRST - 2, 2],
      [FIRST - 1, 3],
      [FIRST, 6],
    ],
  );
  assert.deepEqual(view.taken("k", "c"), { is: "done" });
  assert.deepEqual(
    view.open.map(({ requestId }) => requestId),
    ["r2"],
  );
  view.message(incoming(7, host, "h6", 6, text(1, "newer")));
  assert.equal(view.items.length, 5, "what comes next still fits in");
});

test("a prompt waits until its turn begins", () => {
  const session = new Session();
  session.message(ann, "c", undefined, prompt("go"));
  session.host(receipt("c", "queued"));
  assert.deepEqual(session.view.taken("k", "c"), { is: "queued" });
  assert.deepEqual(session.host(turn("started", { promptId: "c" })).items, [FIRST, FIRST + 1]);
  assert.deepEqual(session.view.taken("k", "c"), { is: "done" });
});
