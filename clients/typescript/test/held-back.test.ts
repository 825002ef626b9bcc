// Behind an address that holds streams back, by GET and by POST: what they bring is polled, once each, with few requests.

import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import test from "node:test";
import {
  Client,
  followHints,
  followRun,
  followSession,
  type FollowOptions,
  type Hint,
  type StreamState,
} from "@ensemble/client";
import { Account, MemoryStore, PublicSession } from "@ensemble/client/account";
import { json, problem, scripted, type Scripted } from "./scripted.js";
import { startServer } from "./server.js";

type Poll = typeof import("../dist/poll.js");

const HEAD = { "content-type": "text/event-stream" };
const isStream = (path: string): boolean => /\/(stream|events)$/.test(path);

/** A session behind a proxy that delivers a stream only when it ends. */
class Held {
  /** The `seq` of each message. */
  readonly messages: number[] = [];
  title = "one";
  isGone = false;
  /** Whether a stream comes as it should, by POST. */
  isOpen = false;
  /** What is to happen at the next look at the session. */
  readonly next: (() => void)[] = [];
  server!: Scripted;

  static async start(begin: (response: ServerResponse) => void): Promise<Held> {
    const held = new Held();
    held.server = await scripted(({ method, path }, response) => {
      const { pathname, searchParams } = new URL(path, "http://x");
      if (isStream(pathname) && held.isOpen && method === "POST") return void response.writeHead(200, HEAD).write(": here\n\n");
      if (isStream(pathname)) return begin(response);
      if (held.isGone) return problem(response, 404, "NOT_FOUND");
      if (pathname === "/v1/sessions/s") {
        held.next.shift()?.();
        return json(response, 200, { title: held.title, lastSeq: held.messages.length });
      }
      const after = Number(searchParams.get("after"));
      const newer = held.messages.filter((seq) => seq > after);
      const messages = newer.slice(0, 2).map((seq) => ({ seq }));
      return json(response, 200, { messages, hasMore: newer.length > 2 });
    });
    return held;
  }

  say(count: number): void {
    for (let times = 0; times < count; times++) this.messages.push(this.messages.length + 1);
  }

  /** The methods by which the stream was asked for. */
  tried(): string[] {
    return this.server.requests.filter(({ path }) => isStream(path)).map(({ method }) => method);
  }

  looks(): number {
    return this.server.requests.filter(({ path }) => path === "/v1/sessions/s").length;
  }
}

const follow = (client: Client, options: FollowOptions & { after?: number }) =>
  followSession(client, "s", { signal: AbortSignal.timeout(120_000), isSeen: () => true, ...options });

for (const [what, begin] of [
  ["head", () => undefined],
  ["first byte", (response: ServerResponse) => response.writeHead(200, HEAD).flushHeaders()],
] as const) {
  test(`a session whose stream's ${what} is held back by GET and by POST is polled`, async () => {
    const held = await Held.start(begin);
    try {
      held.say(3);
      const client = new Client({ base: held.server.url, credential: "t" });
      const states: StreamState[] = [];
      const events: (number | string)[] = [];
      held.next.push(
        () => undefined,
        () => undefined,
        () => held.say(5),
        () => undefined,
        () => undefined,
        () => (held.title = "two"),
      );
      for await (const { event, data } of follow(client, { after: 1, onState: (state) => states.push(state) })) {
        events.push(event === "message" ? data.seq : (data as unknown as { title: string }).title);
        if (events.at(-1) === "two") break;
      }
      // Each message once, all of a long page, and the session when it has changed.
      assert.deepEqual(events, ["one", 2, 3, 4, 5, 6, 7, 8, "two"]);
      assert.deepEqual(
        states.map(({ state, ...more }) => [state, "isHeldBack" in more]),
        [
          ["connecting", false],
          ["open", true],
        ],
      );
      assert.deepEqual(held.tried(), ["GET", "POST"]);
      const messages = held.server.requests.filter(({ path }) => path.includes("/messages?"));
      assert.ok(messages.length <= 4, "messages are read where there are newer ones");

      // Another follower knows it already.
      for await (const { event } of follow(client, { after: 7 })) if (event === "message") break;
      assert.deepEqual(held.tried(), ["GET", "POST"]);

      held.isGone = true;
      await assert.rejects(async () => {
        for await (const _event of follow(client, { after: 8 }));
      }, /What happened/);
    } finally {
      await held.server.close();
    }
  });
}

test("what no person looks at is read every 30 s, and within 2 s when one comes; the stream is tried again", async (context) => {
  const { polled } = (await import(new URL("../../dist/poll.js", import.meta.url).href)) as Poll;
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const [start, now] = [performance.now(), { passed: 0 }];
  context.mock.method(performance, "now", () => start + now.passed);
  const looks: number[] = [];
  let isSeen = false;
  const look = async () => (looks.push(now.passed / 1_000), { events: [] });
  const events = polled(
    look,
    () => undefined,
    () => isSeen,
    new AbortController().signal,
  );
  assert.deepEqual(await events.next(), { done: false, value: undefined });
  let isOver = false;
  const end = events.next().then(({ done }) => (isOver = done === true));
  while (!isOver) {
    assert.ok(now.passed < 400_000);
    if (now.passed === 40_000) isSeen = true;
    // What waits for a pause goes to the next one.
    await new Promise((settled) => setImmediate(settled));
    now.passed += 2_000;
    context.mock.timers.tick(2_000);
    await new Promise((settled) => setImmediate(settled));
  }
  await end;
  assert.deepEqual(looks.slice(0, 4), [0, 30, 42, 44]);
  assert.ok(looks.at(-1)! < 300 && now.passed >= 300_000);
});

test("what changes in the account is found by lists, however many sessions it has", async () => {
  interface Listed {
    id: string;
    updatedAt: string;
    attentionVersion: number;
  }
  const at = (minute: number): string => new Date(Date.UTC(2026, 2, 26, 0, minute)).toISOString();
  const sessions: Listed[] = Array.from({ length: 1_000 }, (_, n) => ({
    id: `s${n}`,
    updatedAt: at(2 * n),
    attentionVersion: 0,
  }));
  const [wanting, machine] = [[] as Listed[], { id: "m", online: false }];
  const server = await scripted(({ path }, response) => {
    const { pathname, searchParams } = new URL(path, "http://x");
    if (pathname === "/v1/events") return;
    if (pathname === "/v1/machines") return json(response, 200, { machines: [machine] });
    if (pathname === "/v1/devices") return json(response, 200, { devices: [] });
    if (pathname === "/v1/orchestrator/runs") return json(response, 200, { runs: [] });
    assert.equal(pathname, "/v1/sessions");
    assert.equal(searchParams.get("include"), "shared");
    if (searchParams.has("attention")) return json(response, 200, { sessions: wanting });
    const since = searchParams.get("changedSince") ?? "";
    const found = sessions.filter(({ updatedAt }) => updatedAt >= since).sort((a, b) => (a.updatedAt < b.updatedAt ? 1 : -1));
    const limit = Number(searchParams.get("limit"));
    json(response, 200, { sessions: found.slice(0, limit), ...(found.length > limit && { nextCursor: "c" }) });
  });
  try {
    const client = new Client({ base: server.url, credential: "t" });
    const hints = followHints(client, { signal: AbortSignal.timeout(120_000), isSeen: () => true });
    const next = async (): Promise<string> => {
      const { value } = await hints.next();
      return [value?.kind, value?.id, value?.session?.updatedAt].filter(Boolean).join(" ");
    };
    assert.equal(await next(), "all");
    sessions[3]!.updatedAt = at(3_000);
    assert.equal(await next(), `session s3 ${at(3_000)}`);
    const before = server.requests.length;
    sessions[7]!.updatedAt = at(3_000);
    assert.equal(await next(), `session s7 ${at(3_000)}`);
    wanting.push({ ...sessions[8]!, attentionVersion: 1 });
    machine.online = true;
    assert.deepEqual([await next(), await next()], [`session s8 ${at(16)}`, "machine m"]);
    wanting.pop();
    assert.equal(await next(), "session s8");
    // All are in one list; the others are read once in 8 s.
    assert.ok(server.requests.length - before < 40, `${server.requests.length - before} requests`);
    for (const one of sessions) one.updatedAt = at(3_002);
    assert.equal(await next(), "all");
    // It is said once.
    sessions[9]!.updatedAt = at(3_003);
    assert.equal(await next(), `session s9 ${at(3_003)}`);
    sessions.length = 0;
    const empty = followHints(client, { signal: AbortSignal.timeout(120_000), isSeen: () => true });
    assert.equal((await empty.next()).value?.kind, "all");
    sessions.push({ id: "first", updatedAt: at(1), attentionVersion: 0 });
    assert.equal((await empty.next()).value?.id, "first");
  } finally {
    await server.close();
  }
});

test("against the real server: what people say, a public link, a run and the account", async () => {
  const server = await startServer();
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(240_000)]);
  const fetched: typeof fetch = (input, init) =>
    isStream(new URL(String(input)).pathname)
      ? new Promise((_, reject) => init?.signal?.addEventListener("abort", () => reject(new Error("given up"))))
      : fetch(input, init);
  const options = { signal, isSeen: () => true };
  try {
    const ann = await Account.create({ base: server.url, store: new MemoryStore(), name: "Ann", fetch: fetched });
    const session = await ann.sessions.create({ title: "Plums" });
    const talk = await ann.sessions.converse(session.id);
    await talk.send("one");

    const hints: Hint[] = [];
    let isNamed: (hint: Hint) => void = () => undefined;
    const named = new Promise<Hint>((resolve) => (isNamed = resolve));
    const hinted = (async () => {
      for await (const hint of followHints(ann.client, options)) {
        hints.push(hint);
        if (hint.kind === "session" && hint.id === session.id) isNamed(hint);
      }
    })();

    const seen: string[] = [];
    for await (const { text } of talk.follow({ after: 0, ...options })) {
      seen.push(text ?? "?");
      if (seen.length === 3) break;
      await talk.send(["two", "three"][seen.length - 1] ?? "");
    }
    assert.deepEqual(seen, ["one", "two", "three"]);

    const { address } = await ann.sessions.createLink(session.id);
    const open = await PublicSession.open(address, { fetch: fetched });
    const read = open.follow(options);
    let next = read.next();
    await talk.send("four");
    while (open.said.length < 4) {
      await next;
      next = read.next();
    }
    assert.deepEqual(
      open.said.map(({ text }) => text),
      ["one", "two", "three", "four"],
    );
    const ends = assert.rejects(next, { code: "LINK_NOT_FOUND" });
    await ann.sessions.deleteLink(session.id);
    await ends;

    const tasks = [{ prompt: "p", provider: "codex" as const }];
    const run = await ann.client.call("POST", "/v1/orchestrator/runs", { body: { tasks } });
    const changes: boolean[] = [];
    for await (const { data } of followRun(ann.client, run.id, options)) {
      changes.push(data.terminal);
      if (!data.terminal) await ann.client.call("POST", "/v1/orchestrator/runs/{id}/cancel", { path: { id: run.id } });
    }
    assert.deepEqual(changes, [false, true]);

    assert.equal((await named).session?.id, session.id);
    stop.abort();
    await hinted;
    assert.equal(hints[0]?.kind, "all");
  } finally {
    stop.abort();
    await server.stop();
  }
});
