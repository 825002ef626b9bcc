// A live session with the real claude, a stand-in for its model, and the real runner.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join as path } from "node:path";
import test, { after, before } from "node:test";
import { followHints } from "@ensemble/client";
import { Account, join, MemoryStore, signRun, type LiveSession } from "@ensemble/client/account";
import type { Shown } from "@ensemble/client/transcript";
import { claude, startModel } from "./model.js";
import { startServer, type Server } from "./server.js";

const WITHIN = 120_000;
let server: Server;
let model: { url: string; stop(): void };
let owner: Account;

before(async () => {
  model = await startModel();
  server = await startServer({ runner: { accept: "signed" }, env: claude(model.url) });
  owner = await linked("primary");
});
after(async () => {
  stop.abort();
  await server?.stop();
  model?.stop();
});

/** Calls that the server does not answer now, as `POST /path`. */
let failingCalls: RegExp | undefined;
const failing: typeof fetch = async (input, init) => {
  if (failingCalls?.test(`${init?.method} ${new URL(String(input)).pathname}`)) {
    return Response.json(
      { code: "FORBIDDEN", detail: "Not now." },
      { status: 403, headers: { "content-type": "application/problem+json" } },
    );
  }
  return fetch(input, init);
};

/** A device of the account of `ensemble up`, added by `ensemble link` there. */
async function linked(role: "primary" | "linked"): Promise<Account> {
  const link = server.begin("up", "link", "--role", role);
  let shown = "";
  const address = await new Promise<string>((resolve, reject) => {
    AbortSignal.timeout(WITHIN).addEventListener("abort", () => reject(new Error(`no address: ${shown}`)));
    link.once("exit", (code) => reject(new Error(`\`ensemble link\` has ended with ${code}: ${shown}`)));
    link.stderr.setEncoding("utf8").on("data", (text: string) => {
      shown += text;
      const found = /https?:\/\/\S+\/link#v1\.[\w-]{22}\.[\w-]{43}/.exec(shown)?.[0];
      if (found !== undefined) resolve(found);
    });
  });
  const joining = await join(address, { store: new MemoryStore(), name: `A ${role} browser`, fetch: failing });
  link.stdin.write(`${joining.digits}\n`);
  return joining.finished(AbortSignal.timeout(WITHIN));
}

const stop = new AbortController();

/** Opens a session and follows it until the end of the tests. */
async function follow(account: Account, id: string): Promise<LiveSession> {
  const live = await account.sessions.open(id);
  await new Promise<void>((resolve, reject) => {
    const onState = ({ state }: { state: string }): void => (state === "open" ? resolve() : undefined);
    const run = async (): Promise<void> => {
      for await (const _changed of live.follow({ signal: stop.signal, onState }));
    };
    run().catch(reject);
  });
  return live;
}

/** Waits until a condition holds. */
function until(live: LiveSession, isSo: () => boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      unsubscribe();
    };
    const timer = setTimeout(() => {
      end();
      reject(new Error(`not in time: ${JSON.stringify(live.view.items.slice(-3).map((item) => item.shown))}`));
    }, WITHIN);
    const look = (): void => {
      if (!isSo()) return;
      end();
      resolve();
    };
    const unsubscribe = live.subscribe(look);
    look();
  });
}

const shown = (live: LiveSession): Shown[] => live.view.items.map((item) => item.shown);
const texts = (live: LiveSession): string[] => shown(live).flatMap((one) => (one.type === "text" ? [one.part.text] : []));
const ended = (live: LiveSession): number =>
  shown(live).filter((one) => one.type === "turn" && one.turn.state === "ended").length;

async function machine(): Promise<string> {
  const { list } = await owner.own(0);
  const found = list.body.devices.find(({ role }) => role === "machine")?.machineId;
  assert.ok(found);
  return found;
}

test("a session is started, prompted, asked, answered and interrupted", async () => {
  const directory = path(server.home("up"), "work");
  const phone = await linked("linked");
  const start = {
    machineId: await machine(),
    directory,
    provider: "claude" as const,
    title: "From a browser",
    model: "claude-sonnet-4-5",
  };
  const session = await owner.sessions.start(start, AbortSignal.timeout(WITHIN));
  const live = await follow(owner, session.id);
  assert.equal((await live.metadata()).title, "From a browser");
  let frames = 0;
  live.subscribe(({ live: isLive }) => (frames += isLive ? 1 : 0));

  // A prompt names the directory that is shown, and the machine compares it.
  assert.equal((await live.metadata()).path, live.view.state?.directory);
  const misled = await live.send({ type: "prompt", text: "[[say No]]", attachments: [], when: "next", directory: "/prod" });
  await until(live, () => live.taken(misled.localId)?.is === "rejected");
  const refused = live.taken(misled.localId);
  assert.ok(refused?.is === "rejected" && refused.code === "wrong_directory" && refused.text?.includes("another directory"));

  const said = await live.prompt("[[say Plums are ripe]]");
  await until(live, () => ended(live) === 1);
  assert.deepEqual([texts(live), live.taken(said.localId)?.is], [["Plums are ripe"], "done"]);
  assert.ok(
    live.view.items.every(
      ({ author }) => author.kind === "host" || (author.kind === "person" && author.key === owner.keys.publicKey),
    ),
  );

  await live.prompt("[[run touch made]]");
  await until(live, () => live.view.open.length === 1);
  const [card] = live.view.open;
  assert.ok(card?.asks.type === "permission" && card.asks.detail.includes("touch made"));
  // The machine says so a moment later. A hint says when to look again.
  let listed: [string, string | undefined][] = [];
  for await (const _hint of followHints(owner.client, { signal: AbortSignal.timeout(WITHIN) })) {
    for await (const some of owner.sessions.pages({ attention: true }))
      listed = some.map(({ id, attention }) => [id, attention?.kind]);
    if (listed.length > 0) break;
  }
  assert.deepEqual(listed, [[session.id, "permission"]]);

  const elsewhere = await follow(phone, session.id);
  assert.equal(elsewhere.view.open[0]?.digest, card.digest, "another device shows the same card");
  const wrong = await elsewhere.answer({ ...card, digest: card.requestId }, { optionId: "x" });
  await until(elsewhere, () => elsewhere.taken(wrong.localId)?.is === "rejected");
  const allow = card.asks.options.find(({ kind }) => kind === "allow_once");
  assert.ok(allow);
  await elsewhere.answer(card, { optionId: allow.optionId });
  await until(live, () => live.view.open.length === 0 && ended(live) === 2);
  assert.ok(existsSync(path(directory, "made")));

  const hanging = await live.prompt("[[hang]]");
  // Its live frame may be lost, so the beginning of its turn says that it works.
  await until(live, () => shown(live).some((one) => one.type === "turn" && one.turn.promptId === hanging.localId));
  const interrupt = await live.control({ action: "interrupt" });
  await until(live, () => ended(live) === 3);
  const last = shown(live).findLast((one) => one.type === "turn");
  assert.ok(last?.type === "turn" && last.turn.stopReason === "cancelled");
  assert.deepEqual([live.taken(interrupt.localId)?.is, live.view.growing()], ["done", []]);

  // Single frames may be lost, those of three turns are not.
  assert.ok(frames > 0);

  const log = await server.ensemble("up", "log", session.id);
  assert.match(log, /Plums are ripe/, "the command line shows the same");
  const again = await owner.sessions.open(session.id);
  assert.deepEqual(
    again.view.items.map(({ seq, shown: { type } }) => [seq, type]),
    live.view.items.map(({ seq, shown: { type } }) => [seq, type]),
  );
});

test("a guest reads, and prompts once the owner allows it", async () => {
  const start = {
    machineId: await machine(),
    directory: path(server.home("up"), "work"),
    provider: "claude" as const,
    model: "claude-sonnet-4-5",
  };
  const session = await owner.sessions.start(start, AbortSignal.timeout(WITHIN));
  const guest = await Account.create({ base: server.url, store: new MemoryStore(), name: "Guest" });
  assert.equal(await owner.sessions.share(session.id, guest.userId, "view"), "nothing");
  const theirs = await follow(guest, session.id);
  await assert.rejects(theirs.prompt("[[say no]]"), { code: "FORBIDDEN" });
  assert.equal(await owner.sessions.changeShare(session.id, guest.userId, "edit"), "confirmed");
  const sent = await theirs.prompt("[[say for the guest]]");
  await until(theirs, () => ended(theirs) === 1);
  assert.deepEqual([texts(theirs), theirs.taken(sent.localId)?.is], [["for the guest"], "done"]);
  const refused = await theirs.control({ action: "stop" });
  await until(theirs, () => theirs.taken(refused.localId)?.is === "rejected");
  const taken = theirs.taken(refused.localId);
  assert.ok(taken?.is === "rejected" && taken.code === "not_allowed");
});

test("a revocation that a machine has not taken is sent again", async () => {
  const start = {
    machineId: await machine(),
    directory: path(server.home("up"), "work"),
    provider: "claude" as const,
    model: "claude-sonnet-4-5",
  };
  const session = await owner.sessions.start(start, AbortSignal.timeout(WITHIN));
  const live = await follow(owner, session.id);
  const mayCommand = (user: string): string | undefined => live.view.state?.access.find((grant) => grant.user === user)?.may;
  const guests = await Promise.all(
    ["One", "Two"].map((name) => Account.create({ base: server.url, store: new MemoryStore(), name })),
  );
  for (const { userId } of guests) {
    await owner.sessions.share(session.id, userId, "edit");
    await until(live, () => mayCommand(userId) === "prompt");
  }
  const [first, second] = guests.map(({ userId }) => userId);
  assert.ok(first && second);

  // It does not arrive, as where the program ends as soon as the share is gone.
  failingCalls = /^(POST .*\/messages|GET \/v1\/users\/.*)$/;
  await assert.rejects(owner.sessions.unshare(session.id, first), { code: "FORBIDDEN" });
  failingCalls = undefined;
  assert.equal(mayCommand(first), "prompt");
  await owner.sessions.finish();
  await until(live, () => mayCommand(first) === "none");

  // The machine refuses it: what it has taken last has a higher version, by a clock that is ahead.
  failingCalls = /^POST .*\/messages$/;
  await assert.rejects(owner.sessions.unshare(session.id, second), { code: "FORBIDDEN" });
  failingCalls = undefined;
  const noted = await owner.store.get<{ revoked: Record<string, Record<string, { localId: string; version: number }>> }>(
    "unfinished",
  );
  const revocation = noted?.revoked[session.id]?.[second];
  assert.ok(revocation);
  const given = live.view.state?.access.find((grant) => grant.user === second);
  assert.ok(given);
  await live.control({ action: "access", value: { ...given, may: "approve", version: Date.now() + 240_000 } });
  await live.control({ action: "access", value: { ...given, may: "none", version: revocation.version } }, revocation.localId);
  await until(live, () => live.taken(revocation.localId)?.is === "rejected");
  assert.equal(mayCommand(second), "approve");
  await owner.sessions.tellMachinesAgain();
  await until(live, () => mayCommand(second) === "none");

  // Once it is confirmed nothing is sent, and a user who gets a share again keeps it.
  await owner.sessions.share(session.id, first, "edit");
  await until(live, () => mayCommand(first) === "prompt");
  const { length } = live.view.items;
  await owner.sessions.finish();
  assert.deepEqual([live.view.items.length, mayCommand(first)], [length, "prompt"]);
});

test("a machine says what it is and what it offers", async () => {
  const [one] = await owner.machines.all();
  assert.ok(one);
  const { os, arch } = await owner.machines.metadata(one);
  assert.ok(os && arch);
  const claude = owner.machines.state(one)?.providers.find(({ provider }) => provider === "claude");
  assert.deepEqual([one.id, await owner.machines.isListed(one.id), claude?.offered], [await machine(), true, true]);
});

test("a machine does the tasks of a run that is signed, and no others", async () => {
  const machineId = (await owner.machines.all())[0]?.id ?? "";
  const task = {
    provider: "claude" as const,
    model: "claude-sonnet-4-5",
    prompt: "[[say signed]]",
    workingDirectory: path(server.home("up"), "work"),
    permission: "plan" as const,
  };
  const run = {
    machineId,
    permission: "plan" as const,
    tasks: [
      { ...task, taskKey: "a", dependsOn: [] },
      { ...task, taskKey: "b", dependsOn: ["a"], prompt: "[[say two]] {{tasks.a.output}}" },
    ],
  };
  const ended = async (body: Parameters<typeof signRun>[1]): Promise<(string | undefined)[]> => {
    const { client } = owner;
    const { id } = await client.call("POST", "/v1/orchestrator/runs", { body });
    const wait = { waitFor: "terminal" as const, timeoutMs: 60_000 };
    while (!(await client.call("POST", "/v1/orchestrator/runs/{id}/pend", { path: { id }, body: wait })).terminal);
    const { tasks } = await client.call("GET", "/v1/orchestrator/runs/{id}", { path: { id } });
    return tasks.map(({ status, error }) => error?.code ?? status);
  };
  assert.deepEqual(await ended(await signRun(owner, run)), ["completed", "completed"]);
  assert.equal((await ended(run))[0], "TASK_NOT_SIGNED");
});

test("what a removed device has let a guest do is taken back", async () => {
  const start = { machineId: await machine(), directory: path(server.home("up"), "work"), provider: "claude" as const };
  const session = await owner.sessions.start(start, AbortSignal.timeout(WITHIN));
  const live = await follow(owner, session.id);
  const [phone, guest] = [
    await linked("linked"),
    await Account.create({ base: server.url, store: new MemoryStore(), name: "Three" }),
  ];
  const grant = () => live.view.state?.access.find(({ user }) => user === guest.userId);
  assert.equal(await phone.sessions.share(session.id, guest.userId, "edit"), "confirmed");
  await until(live, () => grant()?.may === "prompt");
  assert.equal(grant()?.key, phone.keys.publicKey);
  assert.deepEqual(await owner.devices.remove([phone.keys.publicKey]), { unconfirmed: [], unsearched: 0 });
  await until(live, () => grant()?.may === "none");
});
