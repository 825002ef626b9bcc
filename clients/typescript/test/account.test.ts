// An account against the real server, with the command line as the other side: what one makes, the other opens.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Distrust, followHints, isProblem, newId, NoRoom, Refused, type Hint } from "@ensemble/client";
import { Account, join, MemoryStore, PublicSession, recover, unfinishedLinking } from "@ensemble/client/account";
import { startServer, type Server } from "./server.js";

let server: Server;
before(async () => (server = await startServer()));
after(() => server?.stop());

const create = (name: string, store = new MemoryStore()) => Account.create({ base: server.url, store, name });
const signal = () => AbortSignal.timeout(120_000);

test("an account is made, opened again, and reads what it has written", async () => {
  const store = new MemoryStore();
  const ann = await create("Ann's browser", store);
  await assert.rejects(create("again", store), Refused);
  assert.match(await ann.fingerprint(), /^([0-9a-f]{4}-){4}[0-9a-f]{4}$/);
  assert.deepEqual([await ann.isPrimary(), await ann.devices.isAlone()], [true, true]);
  const [device] = await ann.devices.all();
  assert.deepEqual([device?.name, device?.role, device?.current], ["Ann's browser", "primary", true]);

  const session = await ann.sessions.create({ title: "Plums", path: "/tmp" });
  const talk = await ann.sessions.converse(session.ref);
  const sent = await talk.send("hello");
  assert.equal((await talk.send("hello", sent.localId)).seq, sent.seq, "the same id is sent once");

  const again = await Account.open({ base: server.url, store });
  assert.ok(again);
  assert.deepEqual(await again.sessions.metadata(await again.sessions.read(session.id)), { title: "Plums", path: "/tmp" });
  const page = await (await again.sessions.converse(session.id)).page();
  assert.deepEqual(
    page.map(({ seq, text }) => [seq, text]),
    [[1, "hello"]],
  );
  await again.sessions.describe(session.id, (metadata) => ({ ...metadata, title: "Pears" }));
  const listed = [];
  for await (const sessions of again.sessions.pages()) listed.push(...sessions);
  assert.deepEqual(await Promise.all(listed.map((one) => again.sessions.metadata(one))), [{ title: "Pears", path: "/tmp" }]);
  assert.equal(await Account.open({ base: server.url, store: new MemoryStore() }), undefined);
});

test("a stream gives each message once, and hints say what has changed", async () => {
  const ann = await create("Ann");
  const session = await ann.sessions.create({ title: "Streams" });
  const talk = await ann.sessions.converse(session.id);
  await talk.send("one");
  const stop = new AbortController();
  const hints: Hint[] = [];
  const hinted = (async () => {
    for await (const hint of followHints(ann.client, { signal: stop.signal })) {
      hints.push(hint);
      if (hint.kind === "session" && hint.id === session.id) return;
    }
  })();
  const seen: string[] = [];
  for await (const { text } of talk.follow({ after: 0, signal: signal() })) {
    seen.push(text ?? "?");
    if (seen.length < 4) await talk.send(["two", "three", "four"][seen.length - 1] ?? "");
    else break;
  }
  assert.deepEqual(seen, ["one", "two", "three", "four"]);
  await talk.send("five");
  await hinted;
  stop.abort();
  assert.deepEqual(hints[0], { kind: "all" });
});

test("a session is shared with the command line, and taken away", async () => {
  const ann = await create("Ann");
  const bob = JSON.parse(await server.ensemble("bob", "login", "--json")) as { id: string };
  const session = await ann.sessions.create({ title: "Shared plums" });
  const talk = await ann.sessions.converse(session.id);
  await talk.send("for Bob");
  await ann.sessions.share(session.id, bob.id, "edit");
  assert.match(await server.ensemble("bob", "session", "show", session.id, "--json"), /Shared plums/);
  assert.match(await server.ensemble("bob", "session", "read", session.id), /for Bob/);
  await server.ensemble("bob", "session", "send", session.id, "from Bob");
  assert.deepEqual(
    (await talk.page()).map(({ text }) => text),
    ["for Bob", "from Bob"],
  );
  await ann.sessions.changeShare(session.id, bob.id, "view");
  await assert.rejects(server.ensemble("bob", "session", "send", session.id, "no more"));
  await talk.send("with a new key");
  assert.match(await server.ensemble("bob", "session", "read", session.id), /with a new key/);
  await ann.sessions.unshare(session.id, bob.id);
  await talk.send("not for Bob");
  await assert.rejects(server.ensemble("bob", "session", "read", session.id));
  assert.deepEqual(await ann.sessions.shares(session.id), []);
  const read = await ann.sessions.read(session.id);
  assert.deepEqual([read.keyEpoch, read.rekeyNeeded], [3, false]);
});

test("the command line shares with this client, and keys that change are noticed", async () => {
  const ann = await create("Ann");
  await server.ensemble("eve", "login");
  const { session } = JSON.parse(await server.ensemble("eve", "session", "create", "--title", "Eve's", "--json")) as {
    session: { id: string };
  };
  await server.ensemble("eve", "session", "send", session.id, "from Eve");
  await server.ensemble("eve", "share", "add", session.id, ann.userId, "--level", "edit");
  const shared = await ann.sessions.read(session.id);
  assert.equal((await ann.sessions.metadata(shared)).title, "Eve's");
  const talk = await ann.sessions.converse(session.id);
  assert.deepEqual(
    (await talk.page()).map(({ text }) => text),
    ["from Eve"],
  );
  await talk.send("from Ann");
  assert.match(await server.ensemble("eve", "session", "read", session.id), /from Ann/);
  // Another account key for the same user: as a server that lies would show it.
  await ann.store.update(`pin ${shared.ownerId}`, () => ann.keys.publicKey);
  await assert.rejects(ann.pins.accountKey(shared.ownerId), Distrust);
});

/** A store that may be full. */
class FullStore extends MemoryStore {
  constructor(public isFull: boolean) {
    super();
  }

  override update<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<void> {
    return this.isFull ? Promise.reject(new NoRoom("There is no room.")) : super.update(name, change);
  }
}

test("an account whose store is full opens, and works from memory", async () => {
  const store = new FullStore(false);
  const options = { base: server.url, store, name: "Ann" };
  const made = await Account.create(options);
  const session = await made.sessions.create({ title: "Full" });
  store.isFull = true;
  const ann = await Account.open(options);
  assert.ok(ann);
  const talk = await ann.sessions.converse(session.id);
  await talk.send("from memory");
  assert.deepEqual(
    (await talk.page()).map(({ text }) => text),
    ["from memory"],
  );
  const bob = await create("Bob");
  await ann.sessions.share(session.id, bob.userId, "view");
  await ann.sessions.unshare(session.id, bob.userId);
  assert.deepEqual(
    [await store.get(`pin ${bob.userId}`), await ann.store.get(`pin ${bob.userId}`)],
    [undefined, bob.keys.publicKey],
  );
  // With room again all of it is written, onto what another tab may have written meanwhile.
  await ann.store.update<string[]>("both", (kept) => [...(kept ?? []), "mine"]);
  store.isFull = false;
  await store.update<string[]>("both", () => ["another tab's"]);
  await ann.people.list(bob.userId, 0);
  assert.ok(await store.get(`list ${bob.userId}`));
  assert.deepEqual(
    [await store.get("both"), await store.get(`pin ${bob.userId}`)],
    [["another tab's", "mine"], bob.keys.publicKey],
  );
  // What an older program has left lacks what was added since.
  await store.update("unfinished", () => ({ rekeys: {}, removed: {}, isRemoval: false }));
  await ann.sessions.tellMachinesAgain();
  // Keys must not be only in memory: a device that forgets them must not be listed.
  await assert.rejects(Account.create({ ...options, store: new FullStore(true) }), NoRoom);
});

test("a browser is linked, and reads what the first device wrote", async () => {
  const ann = await create("Ann's laptop");
  const session = await ann.sessions.create({ title: "On all devices" });
  await (await ann.sessions.converse(session.id)).send("from the laptop");
  const linking = await ann.devices.link();
  const store = new MemoryStore();
  const phone = await join(linking.address, { store, name: "Ann's phone" });
  assert.equal(await unfinishedLinking(store), linking.address);
  const resumed = await join(linking.address, { store, name: "after a reload" });
  assert.equal(resumed.digits, phone.digits, "a reload shows the same digits");
  await assert.rejects(join(linking.address, { store: new MemoryStore(), name: "Mallory" }), /used already/);
  const asking = await linking.asked(signal());
  assert.deepEqual([asking.kind, asking.name], ["web", "Ann's phone"]);
  const wrong = phone.digits === "000000" ? "000001" : "000000";
  assert.equal(await asking.approve(wrong, "linked"), false);
  const finished = phone.finished(signal());
  assert.equal(await asking.approve(`${phone.digits.slice(0, 3)} ${phone.digits.slice(3)}`, "linked"), true);
  const linked = await finished;
  assert.deepEqual([linked.userId, await linked.isPrimary()], [ann.userId, false]);
  assert.equal(await linked.fingerprint(), await ann.fingerprint());
  const talk = await linked.sessions.converse(session.id);
  assert.deepEqual(
    (await talk.page()).map(({ text }) => text),
    ["from the laptop"],
  );
  await talk.send("from the phone");
  await assert.rejects(linked.devices.newWords(), Refused);
  const names = (await ann.devices.all()).map(({ name, role }) => [name, role]);
  assert.deepEqual(names.sort(), [
    ["Ann's laptop", "primary"],
    ["Ann's phone", "linked"],
  ]);

  await ann.devices.remove([linked.keys.publicKey]);
  await assert.rejects(talk.send("after its removal"), (error) => isProblem(error, "DEVICE_REMOVED"));
  const after = await ann.sessions.read(session.id);
  assert.equal(after.keyEpoch, 2, "the session has a new key");
  await (await ann.sessions.converse(session.id)).send("without the phone");
});

test("recovery words bring an account back, and remove what is lost", async () => {
  const ann = await create("Ann's lost laptop");
  const session = await ann.sessions.create({ title: "Before the loss" });
  const { words } = await ann.devices.newWords();
  assert.equal(words.length, 24);
  assert.equal(await ann.devices.isAlone(), true);
  // As after a reload.
  const same = await ann.devices.sameWords(words);
  assert.deepEqual(same.words, words);
  await same.confirm();
  assert.equal(await ann.devices.isAlone(), false);
  // The name of a lost device is free again.
  const options = { base: server.url, store: new MemoryStore(), name: "Ann's lost laptop" };
  await assert.rejects(recover(words.toReversed().join(" "), options), Refused);
  const found = await recover(words.join(" "), options);
  assert.equal(found.fingerprint, await ann.fingerprint());
  assert.deepEqual(
    found.devices.map(({ name, role }) => [name, role]),
    [["Ann's lost laptop", "primary"]],
  );
  const back = await found.finish(found.devices.map(({ key }) => key));
  assert.deepEqual([back.userId, await back.isPrimary()], [ann.userId, true]);
  assert.deepEqual((await back.devices.all()).map(({ name }) => name).sort(), ["Ann's lost laptop", null]);
  const talk = await back.sessions.converse(session.id);
  assert.equal(talk.session.keyEpoch, 2, "the session has a new key");
  await talk.send("after the loss");
  await assert.rejects(ann.sessions.read(session.id), (error) => isProblem(error, "DEVICE_REMOVED"));
});

test("a public link is read without an account, live", async () => {
  const ann = await create("Ann");
  const session = await ann.sessions.create({ title: "Public plums" });
  const talk = await ann.sessions.converse(session.id);
  await talk.send("for everybody");
  assert.equal(await ann.sessions.link(session.id), undefined);
  const { address } = await ann.sessions.createLink(session.id, { maxUses: 2 });
  // Every user who may write could have given it a title, and no machine has.
  const shown = await server.ensemble("anybody", "share", "open", address);
  assert.ok(shown.includes("for everybody") && !shown.includes("Public plums"), shown);
  const viewing = newId();
  await PublicSession.open(address, { viewing });
  // Opened again, as after a reload, it costs no other use: none is left.
  const open = await PublicSession.open(address, { viewing });
  await assert.rejects(PublicSession.open(address), (error) => isProblem(error, "LINK_NOT_FOUND"));
  const { uses, maxUses, expiresAt, keyEpoch } = (await ann.sessions.link(session.id))!;
  assert.deepEqual({ uses, maxUses, expiresAt, keyEpoch }, { uses: 2, maxUses: 2, expiresAt: null, keyEpoch: 1 });
  assert.deepEqual(await open.metadata(), {});
  const follow = open.follow({ signal: signal() });
  const next = follow.next();
  await talk.send("and more");
  await next;
  assert.deepEqual(
    open.said.map(({ text }) => text),
    ["for everybody", "and more"],
  );
  await ann.sessions.deleteLink(session.id);
  assert.equal(await ann.sessions.link(session.id), undefined);
  await assert.rejects(follow.next());
  await assert.rejects(PublicSession.open(address), (error) => isProblem(error, "LINK_NOT_FOUND"));
  await assert.rejects(PublicSession.open(address.replace(/#.*/, "")), { kind: "format" });
});
