// A server that lies: between the client and the real server somebody changes answers. Nothing is read, written or sealed then.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Distrust, newId, Refused } from "@ensemble/client";
import { Account, join, MemoryStore } from "@ensemble/client/account";
import { SigningKey } from "@ensemble/client/lists";
import { bindings, KeyRing, purposes, sealContent, sealMetadata, SharedRing, sealRing } from "@ensemble/client/seal";
import { signBody, writeCommand } from "@ensemble/client/transcript";
import { startServer, type Server } from "./server.js";

let server: Server;
/** Who lies to nobody. */
let bob: Account;
let bobs: MemoryStore;
let mallory: Account;
before(async () => {
  server = await startServer();
  ({ account: bob, store: bobs } = await account("Bob"));
  mallory = (await account("Mallory")).account;
});
after(() => server?.stop());

// JSON of any shape.
type Json = any;
/** What is changed in the answers to these calls. */
type Lie = (answer: Json, url: URL, method: string) => Json;

/** A connection whose answers can be changed. */
class Liar {
  lie: Lie | undefined;
  readonly sent: string[] = [];

  readonly fetch: typeof fetch = async (input, init) => {
    const url = new URL(String(input));
    const method = init?.method ?? "GET";
    this.sent.push(`${method} ${url.pathname}`);
    const response = await fetch(input, init);
    if (!this.lie || !response.headers.get("content-type")?.startsWith("application/json")) return response;
    return Response.json(this.lie(await response.json(), url, method), { status: response.status });
  };
}

async function account(name: string): Promise<{ account: Account; liar: Liar; store: MemoryStore }> {
  const [liar, store] = [new Liar(), new MemoryStore()];
  return { account: await Account.create({ base: server.url, store, name, fetch: liar.fetch }), liar, store };
}

const ofSession =
  (change: (session: Json) => Json): Lie =>
  (answer, { pathname }) =>
    /^\/v1\/sessions\/[^/]+$/.test(pathname) ? { ...answer, ...change(answer) } : answer;

test("a list that was there is not forgotten, and not another one", async () => {
  const { account: ann, liar } = await account("Ann");
  await bob.devices.newWords().then(({ confirm }) => confirm());
  await ann.people.list(bob.userId);
  const lists = (await ann.client.call("GET", "/v1/users/{id}/devices", { path: { id: mallory.userId } })).lists;
  const lies: [string, (page: Json) => Json][] = [
    ["an older one", (page) => ({ ...page, lists: page.lists.slice(0, -1), nextCursor: null })],
    ["nothing", () => ({ lists: [], nextCursor: null })],
    ["of somebody else", () => ({ lists, nextCursor: null })],
    ["changed", (page) => ({ ...page, lists: page.lists.map((list: Json) => ({ ...list, body: `${list.body} ` })) })],
  ];
  for (const [what, change] of lies) {
    liar.lie = (answer, { pathname }) => (pathname.endsWith(`/users/${bob.userId}/devices`) ? change(answer) : answer);
    await assert.rejects(ann.people.list(bob.userId, 0), Distrust, what);
  }
  liar.lie = undefined;
  assert.equal((await ann.people.list(bob.userId, 0)).version, 2);
});

test("a session keeps its owner, and its keys are by devices of the owner and not older than before", async () => {
  const { account: ann, liar } = await account("Ann");
  const session = await ann.sessions.create({ title: "Plums" });
  const talk = await ann.sessions.converse(session.id);
  await talk.send("one");
  const stranger = await SigningKey.generate();
  const { contents } = await ann.own();
  const binding = bindings.session(session.id, ann.userId);
  const theirs = await sealRing(KeyRing.generate(), await contents.publicKey(), binding, stranger);

  const lies: [string, (session: Json) => Json][] = [
    ["another owner", () => ({ ownerId: bob.userId })],
    ["no longer the owner", () => ({ accessLevel: "edit" })],
    ["a host", () => ({ hosted: true, machineId: "m" })],
    ["another session", () => ({ id: bob.userId, ref: "x" })],
    ["a key by a stranger", () => ({ encryptionKey: theirs })],
  ];
  for (const [what, change] of lies) {
    liar.lie = ofSession(change);
    await assert.rejects(ann.sessions.converse(session.id), Distrust, what);
    await assert.rejects(talk.send("two"), Distrust, what);
  }
  liar.lie = undefined;
  const first = await ann.sessions.read(session.id);
  await ann.sessions.share(session.id, bob.userId, "view");
  await ann.sessions.unshare(session.id, bob.userId);
  await talk.send("with the second key");
  liar.lie = ofSession(() => ({ encryptionKey: first.encryptionKey, keyEpoch: 1, rekeyNeeded: false }));
  await assert.rejects(talk.send("three"), Distrust, "an older key");
  liar.lie = undefined;
  assert.deepEqual(
    (await talk.page()).map(({ text }) => text),
    ["one", "with the second key"],
  );
});

test("who was never chosen gets no key, whatever the server says", async () => {
  const { account: ann, liar } = await account("Ann");
  const session = await ann.sessions.create({ title: "For Bob" });
  await ann.sessions.share(session.id, bob.userId, "edit");
  const [share] = await ann.sessions.shares(session.id);
  assert.ok(share);
  const forged = await SharedRing.seal(
    KeyRing.generate(),
    (await mallory.own()).list.body.contentPublicKey,
    {
      session: session.id,
      recipient: mallory.userId,
      account: mallory.keys.publicKey,
      level: "admin",
      contentEpoch: 1,
      recipientEpoch: 1,
    },
    mallory.keys.signer,
  );
  liar.lie = (answer, { pathname }) =>
    pathname.endsWith("/shares") && answer.shares
      ? {
          ...answer,
          shares: [
            ...answer.shares,
            { ...share, userId: mallory.userId, encryptedKey: forged.toText() },
            { ...share, userId: mallory.userId },
          ],
        }
      : pathname === `/v1/sessions/${session.id}`
        ? { ...answer, rekeyNeeded: answer.keyEpoch === 1 }
        : answer;
  liar.sent.length = 0;
  const talk = await ann.sessions.converse(session.id);
  await talk.send("with a new key");
  const given = liar.sent.filter((call) => /PATCH .*\/shares\//.test(call));
  assert.deepEqual(given, [`PATCH /v1/sessions/${session.id}/shares/${bob.userId}`]);
  assert.deepEqual(
    (await (await bob.sessions.converse(session.id)).page()).map(({ text }) => text),
    ["with a new key"],
  );
});

test("a guest does not use a key that no device of the owner has given", async () => {
  const { account: ann, liar } = await account("Ann");
  const session = await bob.sessions.create({ title: "Shared" });
  await bob.sessions.share(session.id, ann.userId, "edit");
  await ann.sessions.converse(session.id);
  const stranger = await SigningKey.generate();
  const grant = {
    session: session.id,
    recipient: ann.userId,
    account: ann.keys.publicKey,
    level: "edit" as const,
    contentEpoch: 1,
    recipientEpoch: 1,
  };
  const forged = await SharedRing.seal(KeyRing.generate(), (await ann.own()).list.body.contentPublicKey, grant, stranger);
  liar.lie = ofSession(() => ({ encryptedKey: forged.toText() }));
  await assert.rejects(ann.sessions.converse(session.id), Distrust);
  await assert.rejects(bob.sessions.open(session.id), Refused, "no agent works here");
});

test("a message of a user whose devices are not known is by nobody, and closes the session for nobody", async () => {
  const { account: ann, liar } = await account("Ann");
  const session = await ann.sessions.create({ title: "Shared" });
  await ann.sessions.share(session.id, bob.userId, "edit");
  const ring = await bob.sessions.ring(await bob.sessions.read(session.id));
  const users = ["x", "../..", "", session.id, mallory.userId];
  for (const user of [...users, bob.userId]) {
    const localId = newId();
    const body = writeCommand(
      { type: "prompt", text: `as ${user}`, attachments: [], when: "next" },
      { localId, at: new Date().toISOString(), list: { version: 1, digest: "" } },
    );
    const content = await sealContent(
      ring,
      purposes.message(session.id),
      await signBody(session.id, user, body, bob.keys.signer),
    );
    await bob.client.call("POST", "/v3/sessions/{id}/messages", {
      path: { id: session.id },
      body: { content, localId, keyEpoch: ring.epoch },
    });
  }
  // Only a machine makes a session that is hosted; what messages say is read in the same way.
  const isHosted = ofSession(() => ({ hosted: true, machineId: null }));
  const authors = async (lie: Lie) => {
    liar.lie = (answer, url, method) => lie(isHosted(answer, url, method), url, method);
    const { view } = await ann.sessions.open(session.id);
    return view.items.map(({ author }) => (author.kind === "person" ? author.user : author.kind));
  };
  const lists = (): number => liar.sent.filter((call) => call.includes("/v1/users/")).length;
  liar.sent.length = 0;
  assert.deepEqual(await authors((answer) => answer), [...users.map(() => "nobody"), bob.userId]);
  assert.ok(lists() <= 4, "nobody else's devices are asked for");
  // A server that lets guests name others.
  const senders = [...users, bob.userId];
  const namesOthers: Lie = (answer, { pathname }) =>
    pathname.endsWith("/messages")
      ? { ...answer, messages: answer.messages.map((message: Json) => ({ ...message, senderId: senders[message.seq - 1] })) }
      : answer;
  assert.deepEqual(await authors(namesOthers), [...users.map(() => "nobody"), bob.userId]);
  // The account of the guest is another one than before.
  const isOther: Lie = (answer, { pathname }) =>
    pathname === `/v1/users/${bob.userId}` ? { ...answer, publicKey: mallory.keys.publicKey } : answer;
  liar.lie = undefined;
  const fresh = (await Account.open({ base: server.url, store: ann.store, fetch: liar.fetch })) as Account;
  liar.lie = (answer, url, method) => isOther(isHosted(answer, url, method), url, method);
  const { view } = await fresh.sessions.open(session.id);
  assert.equal(view.items.at(-1)?.author.kind, "nobody");
});

test("a session whose machine was removed gets a key that the machine has not, once", async () => {
  // The server makes ten accounts an hour for an address, so this is Bob in another tab.
  const liar = new Liar();
  const tab = await Account.open({ base: server.url, store: bobs, fetch: liar.fetch });
  assert.ok(tab);
  const session = await tab.sessions.create({ title: "Hosted" });
  liar.lie = ofSession(() => ({ hosted: true, machineId: null }));
  for (let writes = 0; writes < 3; writes++) {
    await tab.sessions.describe(session.id, (metadata) => ({ ...metadata, title: `Title ${writes}` }));
    assert.equal((await tab.sessions.read(session.id)).keyEpoch, 2);
  }
});

test("a message of another session does not open", async () => {
  const { account: ann, liar } = await account("Ann");
  const [one, other] = [await ann.sessions.create({ title: "1" }), await ann.sessions.create({ title: "2" })];
  await (await ann.sessions.converse(one.id)).send("for the first");
  const moved = await ann.client.call("GET", "/v3/sessions/{id}/messages", { path: { id: one.id } });
  liar.lie = (answer, { pathname }) => (pathname === `/v3/sessions/${other.id}/messages` ? moved : answer);
  const [said] = await (await ann.sessions.converse(other.id)).page();
  assert.ok(said?.text === undefined && said?.error !== undefined);
  assert.deepEqual(await ann.sessions.metadata({ ...(await ann.sessions.read(one.id)), metadata: other.metadata }), {});
});

test("a session has no title that nobody gave who may, and no old one again", async () => {
  const { account: ann, liar } = await account("Ann");
  const session = await ann.sessions.create({ title: "Plans" });
  await ann.sessions.share(session.id, bob.userId, "edit");
  const title = async () => (await ann.sessions.metadata(await ann.sessions.read(session.id))).title;
  const old = await ann.sessions.read(session.id);
  await ann.sessions.describe(session.id, (metadata) => ({ ...metadata, title: "Next plans" }));
  assert.equal(await title(), "Next plans");
  const ofBob = await bob.sessions.read(session.id);
  assert.equal((await bob.sessions.metadata(ofBob)).title, "Next plans");
  const lies = async (what: string, metadata: string, metadataVersion: number) => {
    liar.lie = ofSession(() => ({ metadata, metadataVersion }));
    assert.equal(await title(), undefined, what);
    liar.lie = undefined;
  };
  await lies("shown again", old.metadata, old.metadataVersion);
  await lies("shown again as a newer one", old.metadata, 3);
  // A guest who may write has the key, and is no admin.
  const ring = await bob.sessions.ring(ofBob);
  const body = JSON.stringify({ title: "Bob's plans" });
  const admin = await SharedRing.fromText(ofBob.encryptedKey ?? "").asAdmin(bob.userId, bob.keys.publicKey);
  const forged = (user: string, more = {}) => sealMetadata(ring, session.id, 3, { body, user, ...more }, bob.keys.signer);
  await lies("by a guest", await forged(bob.userId), 3);
  await lies("by a guest who calls himself an admin", await forged(bob.userId, { admin }), 3);
  await lies("by a guest in the owner's name", await forged(ann.userId), 3);
  assert.equal(await title(), "Next plans");
  // Once he is one, he gives titles that count, and only as long as he is one.
  await ann.sessions.changeShare(session.id, bob.userId, "admin");
  await bob.sessions.describe(session.id, (metadata) => ({ ...metadata, title: "Bob's plans" }));
  assert.equal(await title(), "Bob's plans");
  const his = await ann.sessions.read(session.id);
  await ann.sessions.changeShare(session.id, bob.userId, "edit");
  assert.equal(await title(), "Bob's plans", "signed again with the new key");
  await lies("of an admin of before", his.metadata, (await ann.sessions.read(session.id)).metadataVersion + 1);
});

test("keys that are swapped while a device is linked are found, and another account is", async () => {
  const { account: ann, liar } = await account("Ann");
  const linking = await ann.devices.link();
  await join(linking.address, { store: new MemoryStore(), name: "Phone" });
  const other = await SigningKey.generate();
  liar.lie = (answer) => (answer.request ? { ...answer, request: { ...answer.request, publicKey: other.publicKey } } : answer);
  await assert.rejects(linking.asked(AbortSignal.timeout(120_000)), Distrust);
  liar.lie = undefined;

  const again = await ann.devices.link();
  const [phone, store] = [new Liar(), new MemoryStore()];
  const joining = await join(again.address, { store, name: "Phone", fetch: phone.fetch });
  const theirs = await mallory.client.call("GET", "/v1/users/{id}/devices", { path: { id: mallory.userId } });
  phone.lie = (answer, { pathname }) => (pathname.endsWith("/devices") ? theirs : answer);
  const asking = await again.asked(AbortSignal.timeout(120_000));
  assert.equal(await asking.approve(joining.digits, "linked"), true);
  await assert.rejects(joining.finished(AbortSignal.timeout(120_000)), Distrust);
  assert.equal(await Account.stored(store), undefined, "nothing was kept");
});

test("what devices share is not forgotten with the server, and a restored one gets it again", async () => {
  const store = new MemoryStore();
  /** The account as the database had it that was restored. */
  let restored: { clientState: string | null; clientStateVersion: number } | undefined;
  let swapped: string | undefined;
  const behind: typeof fetch = async (input, init) => {
    const { pathname } = new URL(String(input));
    const answer = async (change: Json) =>
      Response.json({ ...((await (await fetch(input, { ...init, method: "GET", body: null })).json()) as Json), ...change });
    if (swapped && pathname === `/v1/users/${bob.userId}`) return answer({ publicKey: swapped });
    if (!restored || pathname !== "/v1/account") return fetch(input, init);
    if (init?.method === "PATCH") {
      const { clientState, expectedVersion } = JSON.parse(String(init.body)) as Json;
      assert.equal(expectedVersion, restored.clientStateVersion);
      restored = { clientState, clientStateVersion: expectedVersion + 1 };
    }
    return answer(restored);
  };
  const ann = await Account.create({ base: server.url, store, name: "Ann", fetch: behind });
  await ann.pins.accountKey(bob.userId);
  await ann.pins.share((state) => ({ ...state, more: 1 }));
  await store.update(`pin ${bob.userId}`, () => undefined);

  restored = { clientState: null, clientStateVersion: 0 };
  swapped = (await SigningKey.generate()).publicKey;
  await assert.rejects(ann.pins.accountKey(bob.userId), Distrust);
  swapped = undefined;
  await ann.pins.accountKey(mallory.userId);
  assert.equal(restored.clientStateVersion, 3, "one above the one that was used");
  const { state, version } = await ann.pins.shared();
  assert.deepEqual(Object.keys(state.pinned ?? {}).sort(), [bob.userId, mallory.userId].sort());
  assert.deepEqual([state["more"], version], [1, 3]);
});
