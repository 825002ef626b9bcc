// Keys that change while something else happens: a program is ended, a device is removed or linked, another tab is faster, the server lies.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Distrust, Refused, SealError } from "@ensemble/client";
import { Account, DeviceKeys, LiveSession, MemoryStore, recover, type Notice } from "@ensemble/client/account";
import { seenText, SigningKey } from "@ensemble/client/lists";
import { bindings, epochOf, KeyRing, openClientState, openRing, SharedRing, sealRing } from "@ensemble/client/seal";
import { startServer, type Server } from "./server.js";
import { encode } from "./vectors.js";

let server: Server;
/** A guest of the others. */
let bob: Account;
before(async () => {
  server = await startServer();
  bob = await Account.create({ base: server.url, store: new MemoryStore(), name: "Bob" });
});
after(() => server?.stop());

// JSON of any shape.
type Json = any;
/** A call, and how it is made. What it gives is the answer. */
type Call = { method: string; pathname: string; body: Json; go: () => Promise<Response> };

/** A connection that a test stands in. */
class Between {
  stands: ((call: Call) => Promise<Response>) | undefined;
  readonly sent: string[] = [];

  readonly fetch: typeof fetch = async (input, init) => {
    const { pathname } = new URL(String(input));
    const method = init?.method ?? "GET";
    const go = () => fetch(input, init);
    this.sent.push(`${method} ${pathname}`);
    return this.stands
      ? this.stands({ method, pathname, body: init?.body ? JSON.parse(String(init.body)) : undefined, go })
      : go();
  };
}

interface Person {
  account: Account;
  between: Between;
  store: MemoryStore;
}

async function person(name: string): Promise<Person> {
  const [between, store] = [new Between(), new MemoryStore()];
  return { account: await Account.create({ base: server.url, store, name, fetch: between.fetch }), between, store };
}

/** The same device in another tab. */
async function tabOf({ store }: Person): Promise<{ tab: Account; between: Between }> {
  const between = new Between();
  const tab = await Account.open({ base: server.url, store, fetch: between.fetch });
  assert.ok(tab);
  return { tab, between };
}

/** Another device of an account. It is listed without a linking: the server makes only some in a minute. */
async function linked(first: Account): Promise<Account> {
  const store = new MemoryStore();
  const keys = await (await DeviceKeys.generate()).keep(store, { base: server.url, name: "Phone", userId: first.userId });
  await first.devices.change(
    (devices) => [...devices, { key: keys.publicKey, boxKey: keys.boxKey, role: "linked" }],
    [keys.signer],
  );
  const list = (await first.own()).list.signed;
  await store.update(`list ${first.userId}`, () => list);
  const account = await Account.open({ base: server.url, store });
  assert.ok(account);
  return account;
}

/** Removes a device from the list, and does nothing of what follows. */
const strike = (account: Account, device: Account): Promise<boolean> =>
  account.devices.change((devices) => devices.filter(({ key }) => key !== device.keys.publicKey));

const isSession = ({ method, pathname }: Call): boolean => method === "GET" && /^\/v1\/sessions\/[^/]+$/.test(pathname);
const answer = async ({ go }: Call, change: (answer: Json) => Json): Promise<Response> => {
  const response = await go();
  return Response.json(change(await response.json()), { status: response.status });
};
const problem = (status: number, code: string): Response =>
  new Response(JSON.stringify({ type: "about:blank", title: code, status, code, detail: code }), {
    status,
    headers: { "content-type": "application/problem+json" },
  });

/** Says that this epoch is to be replaced, and refuses the keys of guests. */
const leavesGuestsOut =
  (epoch: number) =>
  (call: Call): Promise<Response> => {
    if (call.method === "PATCH" && call.pathname.includes("/shares/")) return Promise.resolve(problem(500, "INTERNAL"));
    return isSession(call) ? answer(call, (session) => ({ ...session, rekeyNeeded: session.keyEpoch === epoch })) : call.go();
  };
const replaces =
  (epoch: number) =>
  (call: Call): Promise<Response> =>
    isSession(call) ? answer(call, (session) => ({ ...session, rekeyNeeded: session.keyEpoch === epoch })) : call.go();

/** As if the hour had passed within which the server's word makes one key, or a restore does. */
const hourLater = ({ store }: Person, id: string): Promise<void> =>
  store.update<Json>(`session ${id}`, (known) => ({ ...known, asked: undefined, replaced: undefined }));

const retitle = (account: Account, id: string, title: string) =>
  account.sessions.describe(id, (metadata) => ({ ...metadata, title }));
const waiting = async ({ store }: Person, id: string): Promise<Json> => (await store.get<Json>("unfinished"))?.rekeys[id];

/** A session whose guest Bob still waits for its second key. */
async function withBobWaiting(
  person: Person,
  first: (id: string) => Promise<unknown> = () => Promise.resolve(),
): Promise<string> {
  const { account: ann, between } = person;
  const { id } = await ann.sessions.create({ title: "Plums" });
  await ann.sessions.share(id, bob.userId, "edit");
  await first(id);
  between.stands = leavesGuestsOut(1);
  await retitle(ann, id, "second key");
  between.stands = undefined;
  assert.deepEqual((await waiting(person, id)).recipients, { [bob.userId]: "edit" });
  return id;
}

/** The epoch of the key that Bob was given. */
async function epochOfBob(ann: Account, id: string): Promise<number> {
  const share = (await ann.sessions.shares(id)).find(({ userId }) => userId === bob.userId);
  assert.ok(share);
  return SharedRing.fromText(share.encryptedKey).epoch;
}

test("a user who waits for a key still gets the next one", async () => {
  const ann = await person("Ann");
  const notices: Notice[] = [];
  const stop = ann.account.notices.subscribe((notice) => notices.push(notice));
  const id = await withBobWaiting(ann);
  await hourLater(ann, id);
  ann.between.stands = replaces(2);
  await retitle(ann.account, id, "third key");
  ann.between.stands = undefined;
  stop();
  assert.deepEqual(
    notices.map((notice) => [notice.is, ...("user" in notice ? [notice.session, notice.user] : [])]),
    ["key_not_given", "key_given"].map((is) => [is, id, bob.userId]),
  );
  assert.equal(await epochOfBob(ann.account, id), 3);
  assert.equal(await waiting(ann, id), undefined);
  assert.equal((await bob.sessions.metadata(await bob.sessions.read(id)))["title"], "third key");
});

test("a user who waits for a key still waits for it when the next one was not made", async () => {
  const ann = await person("Ann");
  for (const [what, fails] of [
    ["refused", true],
    ["interrupted", false],
  ] as const) {
    const id = await withBobWaiting(ann);
    await hourLater(ann, id);
    const isChange = ({ method, pathname }: Call): boolean => method === "PATCH" && pathname === `/v1/sessions/${id}`;
    ann.between.stands = (call) => {
      if (isChange(call)) return Promise.resolve(fails ? problem(409, "VERSION_MISMATCH") : problem(500, "INTERNAL"));
      return replaces(2)(call);
    };
    await assert.rejects(retitle(ann.account, id, "not made"), what);
    if (fails) assert.equal((await waiting(ann, id)).epoch, 2, "the record from before");
    ann.between.stands = undefined;
    await ann.account.sessions.finish();
    assert.equal(await epochOfBob(ann.account, id), 2, what);
    assert.equal(await waiting(ann, id), undefined);
  }
  // A user who was removed meanwhile waits for nothing.
  const id = await withBobWaiting(ann);
  await ann.account.sessions.unshare(id, bob.userId);
  assert.deepEqual([await waiting(ann, id), await ann.account.sessions.shares(id)], [undefined, []]);
});

test("a session gets keys above those that a restored server has lost, once an hour", async () => {
  const ann = await person("Ann");
  const { id } = await ann.account.sessions.create({ title: "Plums" });
  await ann.account.sessions.share(id, bob.userId, "edit");
  const talk = await ann.account.sessions.converse(id);
  await talk.send("one");
  /** As if this device had used newer keys, which a restore has undone. */
  const lose = (epoch: number) => ann.store.update<Json>(`session ${id}`, (known) => ({ ...known, epoch }));
  await lose(3);
  const again = await ann.account.sessions.converse(id);
  assert.deepEqual(
    (await again.page()).map(({ text }) => text),
    ["one"],
  );
  // The server fails when it has two of the three keys.
  let changes = 0;
  ann.between.stands = (call) => {
    const isChange = call.method === "PATCH" && call.pathname === `/v1/sessions/${id}`;
    return isChange && ++changes > 2 ? Promise.resolve(problem(500, "INTERNAL")) : call.go();
  };
  await assert.rejects(again.send("two"));
  ann.between.stands = undefined;
  await again.send("two");
  assert.deepEqual([await epochOfBob(ann.account, id), await waiting(ann, id)], [4, undefined]);
  assert.deepEqual(
    (await (await bob.sessions.converse(id)).page()).map(({ text }) => text),
    ["one", "two"],
  );
  await lose(6);
  await assert.rejects(again.send("three"), /at most once an hour/);
  await hourLater(ann, id);
  const notices: Notice[] = [];
  const stop = ann.account.notices.subscribe((notice) => notices.push(notice));
  await again.send("three");
  stop();
  assert.ok(notices.some((notice) => notice.is === "keys_replaced" && notice.lost === 2));
  assert.equal(await epochOfBob(ann.account, id), 7);
});

test("a key in the place of the one that was used is replaced, for those who had that one", async () => {
  const ann = await person("Ann");
  const { account: carol } = await person("Carol");
  const { id } = await ann.account.sessions.create({ title: "Plums" });
  for (const user of [bob.userId, carol.userId]) await ann.account.sessions.share(id, user, "view");
  const talk = await ann.account.sessions.converse(id);
  await talk.send("one");
  /** As if this device had removed Carol, and another one had made a key of the same epoch without that. */
  await ann.store.update<Json>(`session ${id}`, (known) => {
    assert.deepEqual(new Set(known.used.people), new Set([bob.userId, carol.userId]));
    return { ...known, used: { ...known.used, digest: "another", people: [bob.userId] } };
  });
  const notices: Notice[] = [];
  const stop = ann.account.notices.subscribe((notice) => notices.push(notice));
  await talk.send("two");
  await talk.send("three");
  stop();
  assert.ok(notices.some((notice) => notice.is === "left_out" && notice.user === carol.userId));
  const grants = (await ann.account.sessions.shares(id)).map(({ userId, encryptedKey }) => {
    return [userId, SharedRing.fromText(encryptedKey).epoch] as const;
  });
  const epochs = [
    [bob.userId, 2],
    [carol.userId, 1],
  ] as const;
  assert.deepEqual(new Map(grants), new Map(epochs));
});

test("an interrupted key that a removed device has is not passed on", async () => {
  const ann = await person("Ann");
  const phone = await linked(ann.account);
  const id = await withBobWaiting(ann);
  assert.equal((await phone.sessions.ring(await phone.sessions.read(id))).epoch, 2);
  await strike(ann.account, phone);
  const given: number[] = [];
  ann.between.stands = ({ method, pathname, body, go }) => {
    if (method === "PATCH" && pathname.includes("/shares/")) given.push(SharedRing.fromText(body.encryptedKey).epoch);
    return go();
  };
  await ann.account.sessions.finish();
  assert.deepEqual([given, await epochOfBob(ann.account, id)], [[3], 3]);
  await (await bob.sessions.converse(id)).send("by Bob");
});

test("an interrupted key is passed on only if a device of the owner made it, and it is not an older one", async () => {
  const ann = await person("Ann");
  let first: Json;
  const id = await withBobWaiting(ann, async (made) => (first = await ann.account.sessions.read(made)));
  const session = await ann.account.sessions.read(id);
  const ring = await ann.account.sessions.ring(session);
  // As a machine does it: a key on top, and the floor as it was.
  const onTop = KeyRing.fromBytes(new Uint8Array([...ring.bytes, ...crypto.getRandomValues(new Uint8Array(32))]));
  const sealed = await sealedTo(ann.account, id, onTop, await SigningKey.generate());
  ann.between.sent.length = 0;
  const passed = () => ann.between.sent.filter((call) => /PATCH .*\/shares\//.test(call));
  for (const lie of [
    { encryptionKey: sealed, keyEpoch: 3 },
    { encryptionKey: first.encryptionKey, keyEpoch: 1 },
  ]) {
    ann.between.stands = (call) => (isSession(call) ? answer(call, (now) => ({ ...now, ...lie })) : call.go());
    await assert.rejects(ann.account.sessions.finish(), (error) => error instanceof Distrust || error instanceof Refused);
    assert.deepEqual(passed(), []);
  }
  ann.between.stands = undefined;
  await ann.account.sessions.finish();
  assert.deepEqual([passed().length, await epochOfBob(ann.account, id)], [1, 2]);
});

const sealedTo = async (
  account: Account,
  id: string,
  ring: KeyRing,
  signer: Person["account"]["keys"]["signer"],
): Promise<string> =>
  sealRing(ring, await (await account.own()).contents.publicKey(), bindings.session(id, account.userId), signer);

/** A ring of the highest epoch, whose floor is as high. */
function highest(): KeyRing {
  const head = new Uint8Array(9);
  head[0] = 2;
  new DataView(head.buffer).setUint32(1, 1);
  new DataView(head.buffer).setUint32(5, 170);
  return KeyRing.fromBytes(new Uint8Array([...head, ...crypto.getRandomValues(new Uint8Array(170 * 32))]));
}

test("what a removed device has made is not remembered as the newest key", async () => {
  const ann = await person("Ann");
  const phone = await linked(ann.account);
  const { id } = await ann.account.sessions.create({ title: "Plums" });
  await ann.account.sessions.share(id, bob.userId, "edit");
  // This tab has read the list before the removal.
  const { tab, between } = await tabOf(ann);
  await tab.own();
  const [poison, signer] = [highest(), phone.keys.signer];
  const old = await sealedTo(ann.account, id, poison, signer);
  await strike(ann.account, phone);
  const newest = await sealedTo(ann.account, id, poison, signer);
  for (const [account, stands, encryptionKey] of [
    [tab, between, old],
    [ann.account, ann.between, newest],
  ] as const) {
    stands.stands = (call) => (isSession(call) ? answer(call, (now) => ({ ...now, encryptionKey, keyEpoch: 170 })) : call.go());
    const shown = await account.sessions.read(id);
    assert.equal((await account.sessions.ring(shown)).epoch, 170, "it can be read");
    stands.stands = undefined;
    assert.equal((await account.sessions.ring(await account.sessions.read(id))).epoch, 1);
  }
  await retitle(ann.account, id, "second key");
  assert.equal((await ann.account.sessions.ring(await ann.account.sessions.read(id))).epoch, 2);

  const recipient = { session: id, recipient: bob.userId, account: bob.keys.publicKey };
  const grant = { ...recipient, level: "edit" as const, contentEpoch: 1, recipientEpoch: 1 };
  const shared = await SharedRing.seal(poison, (await bob.own()).list.body.contentPublicKey, grant, signer);
  const read = await bob.sessions.read(id);
  assert.equal((await bob.sessions.ring({ ...read, encryptedKey: shared.toText(), keyEpoch: 170 })).epoch, 170);
  assert.equal((await bob.sessions.ring(read)).epoch, 2);
});

test("another tab that makes a key at the same time is no lie", async () => {
  const ann = await person("Ann");
  const { id } = await ann.account.sessions.create({ title: "Plums" });
  const { tab, between } = await tabOf(ann);
  await tab.own();
  /** The first answer is on its way while the other tab makes a key; the second one is changed. */
  const race = (epoch: number, change: (session: Json) => Json) => {
    let reads = 0;
    between.stands = async (call) => {
      if (!isSession(call) || ++reads > 2) return call.go();
      if (reads === 2) return answer(call, change);
      const response = await call.go();
      ann.between.stands = replaces(epoch);
      await hourLater(ann, id);
      await retitle(ann.account, id, `after ${epoch}`);
      await hourLater(ann, id);
      ann.between.stands = undefined;
      return response;
    };
  };
  race(1, (session) => session);
  assert.equal((await tab.sessions.converse(id)).session.keyEpoch, 2, "it shows the session that belongs to the key");
  race(2, (session) => session);
  assert.equal(epochOf((await retitle(tab, id, "by the tab")).metadata), 3);
  // What was read again is judged as the first one would have been.
  race(3, (session) => ({ ...session, rekeyNeeded: true }));
  assert.equal(epochOf((await retitle(tab, id, "with another key")).metadata), 5);
  const old = await ann.account.sessions.read(id);
  race(5, () => ({ ...old, metadataVersion: 1 }));
  assert.equal(epochOf((await retitle(tab, id, "not under an old key")).metadata), 6);
});

test("what a device shares that was linked a moment ago counts", async () => {
  const ann = await person("Ann");
  const { tab } = await tabOf(ann);
  await tab.pins.share((state) => ({ ...state, first: 1 }));
  const phone = await linked(ann.account);
  await phone.pins.share((state) => ({ ...state, second: 2 }));
  const written = await tab.pins.share((state) => ({ ...state, third: 3 }));
  assert.deepEqual(written, { first: 1, second: 2, third: 3 });
  assert.deepEqual((await phone.pins.shared()).state, written);
  // So does what was sealed to a content key of a moment ago.
  await strike(ann.account, phone);
  await ann.account.pins.share((state) => ({ ...state, fourth: 4 }));
  assert.deepEqual((await tab.pins.shared()).state, { ...written, fourth: 4 });
});

test("what a removed device shared is kept, and what others write meanwhile is", async () => {
  const ann = await person("Ann");
  const [phone, tablet] = [await linked(ann.account), await linked(ann.account)];
  await phone.pins.share((state) => ({ ...state, by: "phone", phone: 1, pinned: { one: "1" } }));
  // The tablet writes between what is read and the removal.
  let isWritten = false;
  ann.between.stands = async ({ method, pathname, go }) => {
    if (method === "POST" && pathname === "/v1/devices" && !isWritten) {
      isWritten = true;
      await tablet.pins.share((state) => ({ ...state, by: "tablet", pinned: { one: "another", two: "2" } }));
    }
    return go();
  };
  ann.between.sent.length = 0;
  const { id } = await ann.account.sessions.create({ title: "Plums" });
  await ann.account.devices.remove([phone.keys.publicKey]);
  const merged = { by: "tablet", phone: 1, pinned: { one: "1", two: "2" } };
  assert.deepEqual((await ann.account.pins.shared()).state, merged);
  const [signed, rekeyed] = ["PATCH /v1/account", `PATCH /v1/sessions/${id}`].map((call) => ann.between.sent.indexOf(call));
  assert.ok(signed !== undefined && rekeyed !== undefined && signed > 0 && signed < rekeyed, "signed before sessions get keys");

  // The signer of what is kept is removed, and the server is behind.
  await tablet.pins.share((state) => ({ ...state, by: "tablet again" }));
  assert.equal((await ann.account.pins.shared()).state["by"], "tablet again");
  await strike(ann.account, tablet);
  assert.deepEqual((await ann.account.pins.shared()).state, { ...merged, by: "tablet again" });
});

test("a removal says how many live sessions were not searched for rights that the device has given", async () => {
  const { account: ann, between, store } = await person("Ann");
  const [phone, tablet] = [await linked(ann), await linked(ann)];
  const [desk, machineId] = [await DeviceKeys.generate(), "m-0123456789"];
  await ann.devices.change(
    (devices) => [...devices, { key: desk.publicKey, boxKey: desk.boxKey, role: "machine", machineId, by: ann.keys.publicKey }],
    [desk.signer],
  );
  const session = await ann.sessions.create({ title: "Plums" });
  // 103 sessions of that machine. None of them can be opened, and half of them were not used lately.
  const long = "2020-01-01T00:00:00.000Z";
  const made = (at: number): Json => ({
    ...session,
    id: `made-up-${at}`,
    ref: undefined,
    hosted: true,
    machineId,
    ...(at % 2 && { updatedAt: long }),
  });
  const asked = new Set<string>();
  between.stands = (call) => {
    if (call.method === "GET" && call.pathname === "/v1/sessions")
      return answer(call, () => ({ sessions: Array.from({ length: 103 }, (_, at) => made(at)), nextCursor: null }));
    const [, id] = /^\/v1\/sessions\/(made-up-\d+)$/.exec(call.pathname) ?? [];
    if (id === undefined) return call.go();
    if (call.method === "GET") asked.add(id);
    return Promise.resolve(problem(404, "NOT_FOUND"));
  };
  const { unsearched } = await ann.devices.remove([phone.keys.publicKey]);
  assert.deepEqual([unsearched, asked.size], [103, 100]);

  // No call answers it of a removal that the next program finishes, and of a recovery.
  const noticesOf = ({ notices }: Account): Notice[] => {
    const all: Notice[] = [];
    notices.subscribe((notice) => all.push(notice))();
    return all;
  };
  assert.deepEqual(noticesOf(ann), [], "a caller has it already");
  await store.update<Json>("unfinished", (kept) => ({ ...kept, isRemoval: true }));
  await ann.sessions.finish();
  const expected = [{ is: "rights_not_searched", sessions: 103 }];
  assert.deepEqual([noticesOf(ann), noticesOf(ann)], [expected, []]);
  const { words, confirm } = await ann.devices.newWords();
  await confirm();
  const options = { base: server.url, store: new MemoryStore(), name: "New", fetch: between.fetch };
  const recovering = await recover(words.join(" "), options);
  assert.deepEqual(noticesOf(await recovering.finish([tablet.keys.publicKey])), expected);
});

test("rights are looked for back to the machine's newest state, and a request only for a person", async () => {
  const { account: ann, between } = await person("Ann");
  const { id } = await ann.sessions.create({ title: "Plums" });
  await (await ann.sessions.converse(id)).send("Hello");
  // Only a machine can create a hosted session. This one asks for something, and has 10,000 messages without a state.
  let first = 10_001;
  between.stands = (call) => {
    if (isSession(call)) return answer(call, (one) => ({ ...one, hosted: true, attention: { kind: "permission", open: 1 } }));
    if (call.method !== "GET" || !call.pathname.endsWith("/messages")) return call.go();
    return answer(call, ({ messages: [one], ...rest }) => ({ ...rest, messages: [{ ...one, seq: --first }] }));
  };
  const pages = (): number => between.sent.splice(0).filter((call) => call === `GET /v3/sessions/${id}/messages`).length;
  pages();
  await LiveSession.open(ann, id);
  assert.equal(pages(), 21);
  const live = await LiveSession.open(ann, id, { isForPerson: false });
  assert.equal(pages(), 1);
  assert.deepEqual([await live.loadState(), pages()], [false, 20]);
});

test("what is given is judged and sealed by a new list, however long a program has been open", async (t) => {
  /** A program that was opened before its person has removed a device. */
  const opened = async (before: (ann: Account, phone: Account) => Promise<void> = () => Promise.resolve()) => {
    const ann = await person("Ann");
    const phone = await linked(ann.account);
    await before(ann.account, phone);
    const { tab } = await tabOf(ann);
    await tab.own();
    await strike(ann.account, phone);
    return { ann: ann.account, tab, ...(await ann.account.own(0)) };
  };
  const carl = await Account.create({ base: server.url, store: new MemoryStore(), name: "Carl" });
  let id = "";
  const [creates, shares, unshares] = [
    await opened(),
    await opened(),
    await opened(async (ann, phone) => {
      ({ id } = await ann.sessions.create({ title: "Plums" }));
      await ann.sessions.share(id, carl.userId, "view");
      await phone.sessions.share(id, bob.userId, "view");
    }),
  ];
  const { now } = performance;
  t.mock.method(performance, "now", () => now.call(performance) + 60_000);

  const made = await creates.tab.sessions.create({ title: "Pears" });
  const { encryptionKey } = await creates.ann.sessions.read(made.id);
  await openRing(encryptionKey ?? "", await creates.contents.pair(), bindings.session(made.id, creates.ann.userId));

  await shares.tab.pins.share((state) => ({ ...state, pears: 1 }));
  const { clientState, clientStateVersion } = await shares.ann.client.call("GET", "/v1/account");
  const { account } = shares.list.body;
  await openClientState(clientState ?? "", await shares.contents.pair(), account, clientStateVersion ?? 0);

  await unshares.tab.sessions.unshare(id, carl.userId);
  assert.equal(epochOf((await unshares.ann.sessions.read(id)).metadata), 2);
  assert.equal(await epochOfBob(unshares.ann, id), 1, "a removed device has shared it with Bob");
});

test("a shared state that does not open does not end the work", async () => {
  const ann = await person("Ann");
  const spoil = async (): Promise<void> => {
    const { client } = ann.account;
    const { clientStateVersion } = await client.call("GET", "/v1/account");
    const body = { clientState: "AAAA", expectedVersion: clientStateVersion ?? 0 };
    await client.call("PATCH", "/v1/account", { body });
  };
  await spoil();
  await assert.rejects(ann.account.pins.shared(), SealError);
  await ann.account.pins.signAgain({});
  assert.deepEqual((await ann.account.pins.shared()).state, { pinned: {} });
  await ann.account.pins.share((state) => ({ ...state, more: 1 }));
  await spoil();
  assert.deepEqual((await ann.account.pins.shared()).state, { pinned: {}, more: 1 });
  await ann.account.pins.share((state) => ({ ...state, again: 2 }));
  assert.deepEqual((await ann.account.pins.shared()).state, { pinned: {}, more: 1, again: 2 });
});

test("a machine confirms a removal with its signature, and the server cannot", async () => {
  const { account, between, store } = await person("Ann");
  const [machine, phone] = [await DeviceKeys.generate(), await DeviceKeys.generate()];
  const entry = { key: machine.publicKey, boxKey: machine.boxKey, role: "machine" as const, machineId: "m-1" };
  const other = { key: phone.publicKey, boxKey: phone.boxKey, role: "linked" as const };
  await account.devices.change((devices) => [...devices, entry, other], [machine.signer, phone.signer]);
  const before = (await account.own()).list;
  let seen: Json = null;
  between.stands = async ({ method, pathname, go }) => {
    if (method !== "GET" || pathname !== "/v1/machines") return go();
    return Response.json({ machines: [{ id: "m-1", online: true, lastActiveAt: null, seen }], nextCursor: null });
  };
  const open = async (): Promise<string[]> => (await account.machines.unconfirmed()).map(({ id }) => id);
  assert.deepEqual(await open(), [], "nothing was removed");
  await strike(account, { keys: phone } as Account);
  const { list } = await account.own();
  const say = async (of: typeof list, by: DeviceKeys, digest = of.digest): Promise<void> => {
    const text = seenText(of.body.account, "m-1", of.version, digest);
    seen = { version: of.version, digest, sig: encode(await by.signer.sign(text)) };
  };
  assert.deepEqual(await account.machines.unconfirmed(), [{ id: "m-1", wasThere: true }]);
  for (const [what, lie] of [
    ["the list before", () => say(before, machine)],
    ["signed by another key", () => say(list, phone)],
    ["another list of this version", () => say(list, machine, before.digest)],
    [
      "a branch that a removed device has signed",
      () => say({ ...list, body: list.body, version: list.version + 1 } as typeof list, machine, before.digest),
    ],
    [
      "a version that was not signed",
      async () => {
        await say(before, machine);
        seen.version = list.version;
      },
    ],
  ] as [string, () => Promise<void>][]) {
    await lie();
    assert.deepEqual(await open(), ["m-1"], what);
  }
  // Another tab of this device knows it too, and so does a newer list.
  const { tab, between: its } = await tabOf({ account, between, store });
  its.stands = between.stands;
  assert.deepEqual((await tab.machines.unconfirmed()).length, 1);
  await account.devices.change((devices) => devices);
  assert.deepEqual(await open(), ["m-1"]);
  await say(list, machine);
  assert.deepEqual(await open(), []);
  assert.deepEqual(await account.machines.awaitConfirmed(), []);
});
