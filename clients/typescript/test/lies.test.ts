// A server that lies: answers are changed between the client and the real server. Then nothing is read, written or sealed.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Distrust, newId, Refused, SealError } from "@ensemble/client";
import {
  Account,
  DeviceKeys,
  doubt,
  join,
  MemoryStore,
  NOT_CHECKED,
  NOT_SIGNED,
  signOrder,
  signRun,
  takeSigned,
  type Conversation,
  type LiveSession,
} from "@ensemble/client/account";
import { SigningKey, type Signer } from "@ensemble/client/lists";
import {
  bindings,
  KeyRing,
  purposes,
  sealClientState,
  sealContent,
  sealJson,
  sealMetadata,
  SharedRing,
  sealRing,
  type ShareLevel,
} from "@ensemble/client/seal";
import { signBody, writeCommand } from "@ensemble/client/transcript";
import { Liar, linked, person, rows, strike, tell, withPhone, type Lie, type Row } from "./lying.js";
import { startServer, type Server } from "./server.js";
import { bytes, encode } from "./vectors.js";

let server: Server;
/** A user to whose programs the server does not lie. */
let bob: Account;
let bobs: MemoryStore;
let mallory: Account;
let stranger: SigningKey;
before(async () => {
  server = await startServer();
  ({ account: bob, store: bobs } = await person(server.url, "Bob"));
  mallory = (await person(server.url, "Mallory")).account;
  stranger = await SigningKey.generate();
});
after(() => server?.stop());

// JSON of any shape.
type Json = any;
const ofSession =
  (change: (session: Json) => Json): Lie =>
  (answer, { pathname }) =>
    /^\/v1\/sessions\/[^/]+$/.test(pathname) ? { ...answer, ...change(answer) } : answer;

// What each `when` of the table does here.
const scenarios: Record<string, (rows: Row[]) => Promise<void>> = {
  "an owner uses a session": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    const [session, other] = [await ann.sessions.create({ title: "Plums" }), await ann.sessions.create({ title: "Other" })];
    const phone = await withPhone(ann);
    const first = await get(ann, session.id);
    const ring = await ann.sessions.ring(await ann.sessions.read(session.id));
    await strike(ann, phone.publicKey);
    const talk = await ann.sessions.converse(session.id);
    await talk.send("with the second key");
    const binding = bindings.session(session.id, ann.userId);
    const to = await (await ann.own()).contents.publicKey();
    const again = await sealRing(ring, to, binding, phone.signer);
    const cast = {
      session: session.id,
      other: await get(ann, other.id),
      other_key: other.encryptionKey,
      another_user: bob.userId,
      made_up: await sealRing(KeyRing.generate().next(), to, binding, stranger),
      moved: moved(again, first.encryptionKey),
      again,
      first,
    };
    for (const row of rows)
      await tell(row, liar, cast, async () => {
        if (row.expect === "ignored") return writes(row, talk, [ann, session.id, 2]);
        if (row.expect === "refused") await assert.rejects(ann.sessions.converse(session.id), doubts, row.id);
        await refused(row, liar, talk.send("secret"));
      });
    await talk.send("fine");
  },
  "an owner uses a session by its ref": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    const { ref } = await ann.sessions.create({ title: "Plums" });
    const other = await get(ann, (await ann.sessions.create({ title: "Other" })).id);
    for (const row of rows) await tell(row, liar, { ref, other }, () => refused(row, liar, ann.sessions.converse(ref)));
    await (await ann.sessions.converse(ref)).send("fine");
  },
  "a guest uses a session": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    const { id } = await bob.sessions.create({ title: "Shared" });
    await bob.sessions.share(id, ann.userId, "edit");
    const talk = await ann.sessions.converse(id);
    const grant = grantTo(ann, id, "edit");
    const forged = await SharedRing.seal(KeyRing.generate(), (await ann.own()).list.body.contentPublicKey, grant, stranger);
    for (const row of rows)
      await tell(row, liar, { session: id, made_up: forged.toText() }, async () => {
        if (row.expect === "ignored") return writes(row, talk, [ann, id, 1]);
        if (row.expect === "refused") await assert.rejects(ann.sessions.converse(id), doubts, row.id);
        await refused(row, liar, talk.send("secret"));
      });
    await talk.send("fine");
  },
  "an owner shares with a friend": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    await bob.devices.newWords().then(({ confirm }) => confirm());
    const { version } = await ann.people.list(bob.userId);
    const lists = async (user: string): Promise<Json[]> =>
      (await ann.client.call("GET", "/v1/users/{id}/devices", { path: { id: user } })).lists;
    const changed = await lists(bob.userId);
    changed.at(-1).body = JSON.stringify({ ...JSON.parse(changed.at(-1).body), contentPublicKey: stranger.publicKey });
    const cast = { friend: bob.userId, others_lists: await lists(mallory.userId), changed_lists: changed };
    for (const row of rows)
      // A list that was read a moment ago would suffice for a share.
      await tell(row, liar, cast, () => refused(row, liar, ann.people.list(bob.userId, 0)));
    assert.equal((await ann.people.list(bob.userId, 0)).version, version);
  },
  "an owner gives a session a new key": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    const { id } = await ann.sessions.create({ title: "For Bob" });
    for (const user of [bob.userId, mallory.userId]) await ann.sessions.share(id, user, "edit");
    const removed = (await ann.sessions.shares(id)).find(({ userId }) => userId === mallory.userId);
    await ann.sessions.unshare(id, mallory.userId);
    const [grant, to] = [grantTo(mallory, id, "admin"), (await mallory.own()).list.body.contentPublicKey];
    const forged = await SharedRing.seal(KeyRing.generate(), to, grant, mallory.keys.signer);
    const cast = { session: id, removed_share: removed, made_up_share: { ...removed, encryptedKey: forged.toText() } };
    for (const row of rows)
      await tell(row, liar, cast, async () => {
        const phone = await withPhone(ann);
        await strike(ann, phone.publicKey);
        await (await ann.sessions.converse(id)).send(row.id);
        const given = liar.sent.filter((call) => /PATCH .*\/shares\//.test(call));
        assert.deepEqual(given, [`PATCH /v1/sessions/${id}/shares/${bob.userId}`], row.id);
      });
    assert.equal((await (await bob.sessions.converse(id)).page()).at(-1)?.text, rows.at(-1)?.id);
  },
  "a user uses their own account": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    await ann.devices.newWords().then(({ confirm }) => confirm());
    const { lists } = await ann.client.call("GET", "/v1/users/{id}/devices", { path: { id: ann.userId } });
    const cast = { me: ann.userId, first_list: lists.slice(0, 1) };
    for (const row of rows) await tell(row, liar, cast, () => refused(row, liar, ann.own(0)));
    assert.equal((await ann.own(0)).list.version, 2);
  },
  "an owner writes after a guest has removed a device": async (rows) => {
    for (const row of rows) {
      const { account: ann, liar } = await person(server.url, "Ann");
      const { account: carl } = await person(server.url, "Carl");
      const phone = await withPhone(carl);
      const { id } = await ann.sessions.create({ title: "Plums" });
      await ann.sessions.share(id, carl.userId, "edit");
      await strike(carl, phone.publicKey);
      // The owner reads the lists of others again after this time.
      await ann.people.list(carl.userId, 0);
      const talk = await ann.sessions.converse(id);
      await tell(row, liar, {}, () => writes(row, talk, [ann, id, 2]));
    }
  },
  "an owner writes after a removal that has made no key": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    for (const row of rows) {
      const { id } = await ann.sessions.create({ title: "Plums" });
      await ann.sessions.share(id, bob.userId, "edit");
      const talk = await ann.sessions.converse(id);
      liar.refuses = (line) => (line === `PATCH /v1/sessions/${id}` ? 500 : undefined);
      await assert.rejects(ann.sessions.unshare(id, bob.userId), { status: 500 });
      liar.refuses = undefined;
      const missing: string[] = [];
      const stop = ann.notices.subscribe((notice) => notice.is === "session_missing" && missing.push(notice.session));
      await tell(row, liar, { session: id }, async () => {
        if (row.expect === "not-written") {
          await assert.rejects(talk.send("secret"), { status: 500 }, row.id);
          await assert.rejects(ann.sessions.createLink(id), { status: 500 }, row.id);
          return assert.ok(!liar.sent.some((call) => /^POST .*(messages|public-share)$/.test(call)), row.id);
        }
        // It is said and asked once.
        for (let times = 0; times < 3; times++) await ann.sessions.finish();
        assert.deepEqual(missing, [id], row.id);
        assert.equal(liar.sent.filter((call) => call === `GET /v1/sessions/${id}`).length, 1, row.id);
      });
      stop();
      liar.lie = ofSession(() => ({ rekeyNeeded: false }));
      await writes(row, talk, [ann, id, 2]);
      liar.lie = undefined;
      const kept = await ann.store.get<Json>("unfinished");
      assert.deepEqual([kept.removed, kept.missing], [{}, {}], row.id);
    }
    // A session that was deleted elsewhere is forgotten with the person's own deletion.
    const { id } = await ann.sessions.create({ title: "Plums" });
    await ann.sessions.share(id, bob.userId, "edit");
    liar.refuses = (line) => (line === `PATCH /v1/sessions/${id}` ? 500 : undefined);
    await assert.rejects(ann.sessions.unshare(id, bob.userId), { status: 500 });
    liar.refuses = (line) => (line.endsWith(`/v1/sessions/${id}`) ? 404 : undefined);
    await ann.sessions.finish();
    await ann.sessions.remove(id);
    liar.refuses = undefined;
    const kept = await ann.store.get<Json>("unfinished");
    assert.deepEqual([kept.removed, kept.missing], [{}, {}]);
  },
  "an owner's machine has not confirmed the end of a right": async (rows) => {
    const { account: ann, liar, store } = await person(server.url, "Ann");
    const { id } = await ann.sessions.create({ title: "Plums" });
    // What is left of a command that was not confirmed.
    const revoked = { [id]: { [bob.userId]: { localId: newId(), version: Date.now() } } };
    await store.update("unfinished", () => ({ revoked }));
    for (const row of rows) {
      await tell(row, liar, { session: id }, () => ann.sessions.finish());
      assert.deepEqual((await store.get<Json>("unfinished")).revoked, revoked, row.id);
    }
  },
  "an owner chooses a machine by its name": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    const [ring, id] = [KeyRing.generate(), "desk"];
    const { contents } = await ann.own();
    const sealed = async (name: string, signer: Signer) => ({
      encryptionKey: await sealRing(ring, await contents.publicKey(), bindings.machine(id), signer),
      metadata: await sealJson(ring, purposes.machineMetadata(id), { host: name }),
    });
    await ann.client.call("POST", "/v1/machines", { body: { id, ...(await sealed("desk", ann.keys.signer)) } });
    const names = async (): Promise<unknown[]> =>
      Promise.all((await ann.machines.all()).map((one) => ann.machines.metadata(one).then(({ host }) => host, doubts)));
    assert.deepEqual(await names(), ["desk"]);
    const theirs = await sealed("scratch", stranger);
    const cast = { made_up: theirs.encryptionKey, made_up_name: theirs.metadata };
    for (const row of rows) assert.deepEqual(await tell(row, liar, cast, names), [true], row.id);
  },
  "a device shares a session with a user whom another device knows": async (rows) => {
    const { account: ann } = await person(server.url, "Ann");
    const [tablet, phone] = [await linked(ann, server.url), await linked(ann, server.url)];
    await ann.people.list(mallory.userId);
    const old = (await ann.client.call("GET", "/v1/account")).clientState ?? "";
    await ann.people.list(bob.userId);
    await ann.devices.remove([phone.account.keys.publicKey]);
    await tablet.account.people.list(mallory.userId);
    const { clientStateVersion } = await ann.client.call("GET", "/v1/account");
    const [{ list, contents }, next] = [await ann.own(), Number(clientStateVersion) + 1];
    const { signer } = phone.account.keys;
    const again = await sealClientState('{"pinned":{}}', await contents.publicKey(), list.body.account, next, signer);
    const cast = { friend: bob.userId, stranger: stranger.publicKey, old, moved: moved(again, old), again, next };
    const { id } = await tablet.account.sessions.create({ title: "Theirs" });
    for (const row of rows)
      await tell(row, tablet.liar, cast, () =>
        refused(row, tablet.liar, tablet.account.sessions.share(id, bob.userId, "edit")),
      );
    await tablet.account.sessions.share(id, bob.userId, "edit");
  },
  "a user reads what strangers write to a machine": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    const session = await ann.sessions.create({ title: "Plums" });
    const ring = await ann.sessions.ring(session);
    const prompt = async (localId: string, signer: Signer) => {
      const info = { localId, at: new Date().toISOString(), list: { version: 1, digest: "" } };
      const body = writeCommand({ type: "prompt", text: localId, attachments: [], when: "next" }, info);
      const signed = await signBody(session.id, ann.userId, body, signer);
      return { localId, keyEpoch: ring.epoch, content: await sealContent(ring, purposes.message(session.id), signed) };
    };
    for (let some = 0; some < 5; some++) {
      const strangers = Array.from({ length: 200 }, async (_, at) => prompt(`${some} ${at}`, await SigningKey.generate()));
      const [path, messages] = [{ id: session.id }, await Promise.all(strangers)];
      await ann.client.call("POST", "/v3/sessions/{id}/messages/batch", { path, body: { messages } });
    }
    const [path, body] = [{ id: session.id }, await prompt("her own", ann.keys.signer)];
    await ann.client.call("POST", "/v3/sessions/{id}/messages", { path, body });
    // Only a machine can create a hosted session. Messages of this one are read in the same way.
    liar.lie = ofSession(() => ({ hosted: true, machineId: null }));
    const { view } = await ann.sessions.open(session.id);
    const authors = new Set(view.items.slice(0, -1).map(({ author }) => author.kind));
    assert.deepEqual([[...authors], view.items.at(-1)?.author.kind], [["unknown"], "person"], rows[0]?.id);
  },
  "a guest reads what a removed device writes": async (rows) => {
    const { account: ann } = await person(server.url, "Ann");
    const [desk, phone, machineId] = [await DeviceKeys.generate(), await withPhone(ann), "m-0123456789"];
    const entry = { key: desk.publicKey, boxKey: desk.boxKey, role: "machine" as const, machineId, by: ann.keys.publicKey };
    await ann.devices.change((devices) => [...devices, entry], [desk.signer]);
    const { id } = await ann.sessions.create({ title: "Plums" });
    await ann.sessions.share(id, bob.userId, "view");
    const ring = await ann.sessions.ring(await ann.sessions.read(id));
    const post = async (localId: string, content: Json, signer: Signer): Promise<void> => {
      const { version, digest } = (await ann.own()).list;
      const head = { v: 1, localId, at: new Date().toISOString(), list: { version, digest } };
      const signed = await signBody(id, ann.userId, JSON.stringify({ ...head, ...content }), signer);
      const body = { localId, keyEpoch: ring.epoch, content: await sealContent(ring, purposes.message(id), signed) };
      await ann.client.call("POST", "/v3/sessions/{id}/messages", { path: { id }, body });
    };
    const text = (n: number): Json => ({ n, type: "text", turnId: "t", part: n, text: "written", interrupted: false });
    const prompt = (said: string): Json => ({ type: "prompt", text: said, attachments: [], when: "next" });
    await post("h1", text(1), desk.signer);
    await post("p1", prompt("before"), phone.signer);
    const { lists } = await ann.client.call("GET", "/v1/users/{id}/devices", { path: { id: ann.userId } });
    await bob.people.list(ann.userId, 0);
    await strike(ann, phone.publicKey);
    await post("h2", text(2), desk.signer);
    await post("p2", prompt("after"), phone.signer);

    // Only a machine can create a hosted session. This one is given to Bob as one.
    const grant = { ...grantTo(bob, id, "view"), machine: machineId };
    const shared = await SharedRing.seal(ring, (await bob.own()).list.body.contentPublicKey, grant, ann.keys.signer);
    const hosted = ofSession(() => ({ hosted: true, machineId, encryptedKey: shared.toText() }));
    for (const row of rows) {
      const liar = new Liar();
      const tab = await Account.open({ base: server.url, store: bobs, fetch: liar.fetch });
      assert.ok(tab);
      const said = (live: LiveSession): string[] =>
        live.view.items.flatMap(({ shown, unconfirmed }) =>
          shown.type === "prompt"
            ? [`${shown.prompt.text} ${unconfirmed ?? ""}`]
            : shown.type === "note"
              ? [JSON.stringify(shown.note)]
              : [],
        );
      const cast = { owner: ann.userId, known: lists.slice(-1) };
      const live = await tell(row, liar, cast, async () => {
        const lie = liar.lie;
        liar.lie = (answer, url, method) => hosted(lie?.(answer, url, method), url, method);
        const opened = await tab.sessions.open(id);
        assert.deepEqual([said(opened), opened.view.withheld], [["before ", "after 4"], 4], row.id);
        return opened;
      });
      // The list comes, and the screen that is open shows what it says.
      liar.lie = hosted;
      const stop = AbortSignal.timeout(120_000);
      for await (const _changed of live.follow({ signal: stop })) if (live.view.withheld === undefined) break;
      const removed = JSON.stringify({ kind: "removed", user: ann.userId, text: "after" });
      assert.deepEqual([said(live), live.view.withheld], [["before ", removed], undefined], row.id);
    }
  },
  "an owner looks at a run": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    const submitted = async (): Promise<Json> => {
      const run = { title: "Plums", tasks: [{ prompt: "Pick them.", provider: "claude" as const, machineId: null }] };
      return ann.client.call("POST", "/v1/orchestrator/runs", { body: await signRun(ann, run) });
    };
    const [other, run] = [await submitted(), await submitted()];
    const cast = { run: run.id, run_ref: run.ref, task: run.tasks[0].id, task_ref: run.tasks[0].ref, other };
    const taken = async (): Promise<Json> =>
      takeSigned(ann, run.id, (await ann.client.call("GET", "/v1/orchestrator/runs/{id}", { path: { id: run.id } })) as Json);
    for (const row of rows)
      await tell(row, liar, cast, async () => {
        if (row.expect === "refused") return refused(row, liar, taken());
        const { title, tasks } = await taken();
        if (row.expect === "ignored") return assert.deepEqual([title, tasks[0].prompt], ["Plums", "Pick them."], row.id);
        assert.ok(tasks[0].prompt === null && [NOT_SIGNED, NOT_CHECKED].includes(doubt(tasks[0]) ?? ""), row.id);
        await refused(row, liar, signOrder(ann, tasks[0], { action: "message", text: "more" }));
      });
  },
  "a device is linked": async (rows) => {
    const { account: ann, liar } = await person(server.url, "Ann");
    for (const row of rows) {
      const linking = await ann.devices.link();
      await join(linking.address, { store: new MemoryStore(), name: "Phone" });
      await tell(row, liar, { stranger: stranger.publicKey }, () =>
        refused(row, liar, linking.asked(AbortSignal.timeout(120_000))),
      );
    }
  },
};

test("the client withstands every lie of the table", async (t) => {
  const table = rows();
  assert.deepEqual([...table.keys()].sort(), Object.keys(scenarios).sort());
  for (const [when, scenario] of Object.entries(scenarios)) await t.test(when, () => scenario(table.get(when) ?? []));
});

/** The client itself refuses it, and not the server. */
const doubts = (error: unknown): boolean => [Distrust, Refused, SealError].some((kind) => error instanceof kind);

/** It is an error, and nothing was written. */
async function refused(row: Row, liar: Liar, tried: Promise<unknown>): Promise<void> {
  await assert.rejects(tried, doubts, row.id);
  const written = liar.sent.filter((call) => /^POST .*\/(messages|shares)$/.test(call));
  assert.deepEqual(written, [], row.id);
}

/** The lie changes nothing for those who write and read. */
async function writes(row: Row, talk: Conversation, [account, id, epoch]: [Account, string, number]): Promise<void> {
  await talk.send(row.id);
  assert.equal((await talk.page()).at(-1)?.text, row.id);
  assert.equal((await account.sessions.ring(await account.sessions.read(id))).epoch, epoch, row.id);
}

/** A session as the server has it. */
const get = (account: Account, id: string): Promise<Json> => account.client.call("GET", "/v1/sessions/{id}", { path: { id } });

/** What was sealed, with signer and signature of another seal. */
const moved = (sealed: string, from: string): string =>
  encode(Uint8Array.from([...bytes(from).subarray(0, 97), ...bytes(sealed).subarray(97)]));

const grantTo = (account: Account, session: string, level: ShareLevel) => ({
  session,
  recipient: account.userId,
  account: account.keys.publicKey,
  level,
  contentEpoch: 1,
  recipientEpoch: 1,
});

test("a message of a user whose devices are not known has an unknown author, and the session stays readable", async () => {
  const { account: ann, liar } = await person(server.url, "Ann");
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
  assert.deepEqual(await authors((answer) => answer), [...users.map(() => "unknown"), bob.userId]);
  assert.ok(lists() <= 4, "no other user's devices are fetched");
  // A server that lets guests name others.
  const senders = [...users, bob.userId];
  const namesOthers: Lie = (answer, { pathname }) =>
    pathname.endsWith("/messages")
      ? { ...answer, messages: answer.messages.map((message: Json) => ({ ...message, senderId: senders[message.seq - 1] })) }
      : answer;
  assert.deepEqual(await authors(namesOthers), [...users.map(() => "unknown"), bob.userId]);
  // The account of the guest is another one than before.
  const isOther: Lie = (answer, { pathname }) =>
    pathname === `/v1/users/${bob.userId}` ? { ...answer, publicKey: mallory.keys.publicKey } : answer;
  liar.lie = undefined;
  const fresh = (await Account.open({ base: server.url, store: ann.store, fetch: liar.fetch })) as Account;
  liar.lie = (answer, url, method) => isOther(isHosted(answer, url, method), url, method);
  const { view } = await fresh.sessions.open(session.id);
  assert.equal(view.items.at(-1)?.author.kind, "unknown");
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
  const { account: ann, liar } = await person(server.url, "Ann");
  const [one, other] = [await ann.sessions.create({ title: "1" }), await ann.sessions.create({ title: "2" })];
  await (await ann.sessions.converse(one.id)).send("for the first");
  const moved = await ann.client.call("GET", "/v3/sessions/{id}/messages", { path: { id: one.id } });
  liar.lie = (answer, { pathname }) => (pathname === `/v3/sessions/${other.id}/messages` ? moved : answer);
  const [said] = await (await ann.sessions.converse(other.id)).page();
  assert.ok(said?.text === undefined && said?.error !== undefined);
  assert.deepEqual(await ann.sessions.metadata({ ...(await ann.sessions.read(one.id)), metadata: other.metadata }), {});
});

test("a session's title is by a user who may give one, and no old one comes back", async () => {
  const { account: ann, liar } = await person(server.url, "Ann");
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

test("a device is not linked to another account", async () => {
  const { account: ann } = await person(server.url, "Ann");
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
