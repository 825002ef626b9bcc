// Messages that come before their key: they wait at the end of the transcript, and are shown in order when the key comes.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { newId } from "@ensemble/client";
import { Account, MemoryStore, type LiveSession } from "@ensemble/client/account";
import { epochOf, purposes, sealContent } from "@ensemble/client/seal";
import { signBody, writeCommand } from "@ensemble/client/transcript";
import { startServer, type Server } from "./server.js";

const WITHIN = 120_000;
let server: Server;
let ann: Account;
let bob: Account;
before(async () => {
  server = await startServer();
  ann = await Account.create({ base: server.url, store: new MemoryStore(), name: "Ann", fetch: withoutKeys });
  bob = await Account.create({ base: server.url, store: new MemoryStore(), name: "Bob", fetch: hosted });
});
after(() => server?.stop());

// JSON of any shape.
type Json = any;
const isSession = (input: RequestInfo | URL): boolean => /^\/v1\/sessions\/[^/]+$/.test(new URL(String(input)).pathname);

/** The server says to Ann that this epoch is to be replaced, and guests get no key meanwhile. */
let replaces: number | undefined;
const withoutKeys: typeof fetch = async (input, init) => {
  if (replaces === undefined) return fetch(input, init);
  if (init?.method === "PATCH" && String(input).includes("/shares/")) {
    const problem = { type: "about:blank", title: "Not now", status: 500, code: "INTERNAL", detail: "Not now." };
    return Response.json(problem, { status: 500, headers: { "content-type": "application/problem+json" } });
  }
  const response = await fetch(input, init);
  if (!isSession(input) || !response.ok) return response;
  const session: Json = await response.json();
  return Response.json({ ...session, rekeyNeeded: session.keyEpoch === replaces });
};

/** What Bob asks for. Only a machine makes a session that is hosted; what messages say is read in the same way. */
const asked: string[] = [];
let bobSees: Json;
/** What Bob gets in the place of the next streams of hints. */
const streams: (() => Response | Promise<Response>)[] = [];
/** What Bob gets in the place of each part of a history. */
let part: ((messages: Json[]) => Json[]) | undefined;
const hosted: typeof fetch = async (input, init) => {
  const { pathname } = new URL(String(input));
  asked.push(`${init?.method ?? "GET"} ${pathname}`);
  const stream = pathname === "/v1/events" ? streams.shift() : undefined;
  if (stream) return stream();
  const response = await fetch(input, init);
  if (part && pathname.endsWith("/messages") && (init?.method ?? "GET") === "GET") {
    const page: Json = await response.json();
    return Response.json({ ...page, messages: part(page.messages) });
  }
  if (!isSession(input) || !response.ok) return response;
  return Response.json({ ...(await response.json()), hosted: true, machineId: null, ...bobSees });
};

async function shared(): Promise<string> {
  const { id } = await ann.sessions.create({ title: "Shared" });
  await ann.sessions.share(id, bob.userId, "view");
  return id;
}

/** Ann says something, under the session's newest key. */
async function say(id: string, text: string): Promise<void> {
  const [localId, list] = [newId(), { version: 1, digest: "" }];
  const command = { type: "prompt" as const, text, attachments: [], when: "next" as const };
  const body = writeCommand(command, { localId, at: new Date().toISOString(), list });
  const ring = await ann.sessions.ring(await ann.sessions.read(id));
  const signed = await signBody(id, ann.userId, body, ann.keys.signer);
  const content = await sealContent(ring, purposes.message(id), signed);
  const sent = { content, localId, keyEpoch: ring.epoch };
  await ann.client.call("POST", "/v3/sessions/{id}/messages", { path: { id }, body: sent });
}

/** Ann gives the session a new key, and her program ends before Bob has it. */
async function rekeyWithoutBob(id: string): Promise<void> {
  replaces = 1;
  try {
    await ann.sessions.describe(id, (metadata) => ({ ...metadata, title: "Another key" }));
  } finally {
    replaces = undefined;
  }
}

const shown = ({ view }: LiveSession): string[] =>
  view.items.map(({ shown: one }) => (one.type === "prompt" ? one.prompt.text : JSON.stringify(one)));

/** Follows the session until a condition holds. */
async function until(live: LiveSession, isSo: () => boolean, then?: () => Promise<unknown>): Promise<void> {
  if (isSo()) return;
  const stop = new AbortController();
  const late = setTimeout(() => stop.abort(), WITHIN);
  let failed: unknown;
  const onState = ({ state }: { state: string }): void => {
    if (state !== "open" || !then) return;
    then().catch((error: unknown) => {
      failed = error;
      stop.abort();
    });
    then = undefined;
  };
  for await (const _changed of live.follow({ signal: stop.signal, onState })) if (isSo()) break;
  clearTimeout(late);
  if (failed) throw failed;
  assert.ok(isSo(), `not in time: ${JSON.stringify([live.view.lacksKey, shown(live)])}`);
}

test("what comes before its key waits, and is shown in order when the key comes", async () => {
  const id = await shared();
  await say(id, "one");
  const live = await bob.sessions.open(id);
  assert.deepEqual([shown(live), live.view.lacksKey], [["one"], false]);

  await until(
    live,
    () => live.view.lacksKey,
    async () => {
      await rekeyWithoutBob(id);
      await say(id, "two");
    },
  );
  assert.deepEqual(shown(live), ["one"], "it is not called unreadable");

  // More comes, and nothing is asked of the server for it.
  await say(id, "three");
  await say(id, "four");
  asked.length = 0;
  const before = live.view.lastSeq;
  await until(
    live,
    () => !live.view.lacksKey,
    () => ann.sessions.finish(),
  );
  assert.deepEqual(shown(live), ["one", "two", "three", "four"]);
  assert.ok((live.view.lastSeq ?? 0) > (before ?? 0));
  assert.ok(asked.filter((call) => call === `GET /v3/sessions/${id}/messages`).length === 1, asked.join("\n"));

  const again = await bob.sessions.open(id);
  assert.deepEqual(
    again.view.items.map(({ seq }) => seq),
    live.view.items.map(({ seq }) => seq),
  );
});

test("a session that is opened before its key comes continues when it comes, also while there is no connection", async () => {
  const id = await shared();
  await say(id, "one");
  await rekeyWithoutBob(id);
  for (let at = 2; at <= 5; at++) await say(id, String(at));
  const live = await bob.sessions.open(id);
  assert.deepEqual([shown(live), live.view.lacksKey], [["one"], true]);
  // No hint names it: the first connection comes later.
  await ann.sessions.finish();
  await until(live, () => !live.view.lacksKey);
  assert.deepEqual(shown(live), ["one", "2", "3", "4", "5"]);
});

test("hints that are refused or end are followed again, and not without a pause", async () => {
  const id = await shared();
  await say(id, "one");
  await rekeyWithoutBob(id);
  await say(id, "two");
  const live = await bob.sessions.open(id);
  assert.deepEqual([shown(live), live.view.lacksKey], [["one"], true]);
  const refused = { type: "about:blank", title: "No", status: 403, code: "FORBIDDEN", detail: "No." };
  const over = (): Response => new Response(null, { status: 204 });
  streams.push(
    () => Response.json(refused, { status: 403, headers: { "content-type": "application/problem+json" } }),
    over,
    over,
    async () => {
      await ann.sessions.finish();
      return over();
    },
  );
  asked.length = 0;
  await until(live, () => !live.view.lacksKey);
  assert.deepEqual([shown(live), streams.length], [["one", "two"], 0]);
  const reads = asked.filter((call) => call === `GET /v1/sessions/${id}`).length;
  assert.ok(reads <= 3, `it was read ${reads} times, although no hint named a key`);
});

test("a server that gives the same messages again is not asked without end", async () => {
  const id = await shared();
  await say(id, "one");
  await rekeyWithoutBob(id);
  for (const text of ["two", "three"]) await say(id, text);
  const live = await bob.sessions.open(id);
  await ann.sessions.finish();
  let [first, parts]: [Json, number] = [undefined, 0];
  part = (messages) => {
    if (++parts > 20) throw new Error("asked for ever");
    return [(first ??= messages[0])];
  };
  try {
    await until(live, () => !live.view.lacksKey);
  } finally {
    part = undefined;
  }
  assert.deepEqual(shown(live), ["one", "two"]);
});

test("a key that the session never had is not waited for", async () => {
  const id = await shared();
  await say(id, "one");
  await rekeyWithoutBob(id);
  await say(id, "two");
  const { keyEpoch } = await bob.sessions.read(id);
  const { messages } = await bob.client.call("GET", "/v3/sessions/{id}/messages", { path: { id }, query: { limit: 10 } });
  assert.deepEqual(messages.map(({ content }) => epochOf(content)).sort(), [1, keyEpoch]);
  bobSees = { keyEpoch: keyEpoch - 1 };
  try {
    const live = await bob.sessions.open(id);
    assert.equal(live.view.lacksKey, false);
    assert.match(shown(live)[1] ?? "", /not_signed.*key 2, which you do not have/);
  } finally {
    bobSees = undefined;
  }
});
