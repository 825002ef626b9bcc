// Titles that last: no guest, no removed device and no server that was restored takes one away, and none of them gives one.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { SealError } from "@ensemble/client";
import { Account, join, MemoryStore, type Metadata, type Session } from "@ensemble/client/account";
import { SigningKey } from "@ensemble/client/lists";
import { bindings, openMetadata, partOf, sealMetadata, sealRing, SharedRing } from "@ensemble/client/seal";
import { startServer, type Server } from "./server.js";

// JSON of any shape.
type Json = any;

let server: Server;
let ann: Account;
let bob: Account;
const store = new MemoryStore();
/** What is changed in the answers that Ann gets. A number is the status of a failure. */
let lie: ((answer: Json, path: string) => Json) | undefined;

const lying: typeof fetch = async (input, init) => {
  const { pathname } = new URL(String(input));
  const response = await fetch(input, init);
  if (!lie || !response.headers.get("content-type")?.startsWith("application/json")) return response;
  const answer = lie(await response.json(), pathname);
  if (typeof answer !== "number") return Response.json(answer, { status: response.status });
  return Response.json({ code: "INTERNAL", title: "It failed.", status: answer }, { status: answer });
};

before(async () => {
  server = await startServer();
  ann = await Account.create({ base: server.url, store, name: "Ann", fetch: lying });
  bob = await Account.create({ base: server.url, store: new MemoryStore(), name: "Bob" });
});
after(() => server?.stop());

/** Ann's program after a new start, which asks for every list again. It tries a call again for a second. */
async function again(): Promise<Account> {
  const opened = await Account.open({ base: server.url, store, fetch: lying, retryFor: 1_000 });
  assert.ok(opened);
  return opened;
}

const title = async (id: string, account = ann): Promise<unknown> =>
  (await account.sessions.metadata(await account.sessions.read(id))).title;
const forget = (id: string): Promise<void> => store.update(`seen title ${id}`, () => undefined);
const called =
  (name: string) =>
  (metadata: Metadata): Metadata => ({ ...metadata, title: name });

async function withAdmin(): Promise<Session> {
  const session = await ann.sessions.create({ title: "Plans" });
  await ann.sessions.share(session.id, bob.userId, "admin");
  return session;
}

test("a title prevents no new key, and one that is too long is not made", async () => {
  const { id } = await withAdmin();
  const ofBob = await bob.sessions.read(id);
  const ring = await bob.sessions.ring(ofBob);
  const admin = await SharedRing.fromText(ofBob.encryptedKey ?? "").asAdmin(bob.userId, bob.keys.publicKey);
  // Each number is written in four characters, and in more when it is signed again.
  const body = `{"title":"Bob's","n":[${"1e20,".repeat(3_200)}1]}`;
  const metadata = await sealMetadata(ring, id, 2, { body, user: bob.userId, admin }, bob.keys.signer);
  const patch = { path: { id }, body: { metadata, expectedMetadataVersion: 1 } };
  await bob.client.call("PATCH", "/v1/sessions/{id}", patch);
  assert.equal(await title(id), "Bob's");
  await ann.sessions.unshare(id, bob.userId);
  assert.deepEqual([(await ann.sessions.read(id)).keyEpoch, await title(id)], [2, "Bob's"]);
  await assert.rejects(
    ann.sessions.describe(id, called("x".repeat(17_000))),
    (error) => error instanceof SealError && error.kind === "bound",
  );
  await ann.sessions.describe(id, called("Mine"));
  assert.equal(await title(id), "Mine");
});

test("a device that was removed gives no title, and takes none away", async () => {
  const { id } = await ann.sessions.create({ title: "Plans" });
  const linking = await ann.devices.link();
  const joining = await join(linking.address, { store: new MemoryStore(), name: "Phone" });
  const asking = await linking.asked(AbortSignal.timeout(120_000));
  const finished = joining.finished(AbortSignal.timeout(120_000));
  assert.equal(await asking.approve(joining.digits, "linked"), true);
  const phone = await finished;
  await phone.sessions.describe(id, called("From the phone"));
  const old = await phone.sessions.read(id);
  const ring = await phone.sessions.ring(old);
  await ann.devices.remove([phone.keys.publicKey]);
  assert.equal(await title(id), "From the phone", "it was given while the device was listed");
  const body = JSON.stringify({ title: "Theirs" });
  const metadata = await sealMetadata(ring, id, 3, { body, user: ann.userId }, phone.keys.signer);
  const theirs = { ...old, metadata, metadataVersion: 3 };
  assert.deepEqual(await ann.sessions.metadata(theirs), {});
  // Also where the session was not seen before.
  await forget(id);
  assert.deepEqual([await ann.sessions.metadata(theirs), await ann.sessions.metadata(old)], [{}, {}]);
  assert.equal(await title(id), "From the phone");
});

test("a title is not lost while it cannot be found out whether it counts", async () => {
  const { id } = await withAdmin();
  await bob.sessions.describe(id, called("By an admin"));
  const isBob = (path: string): boolean => path.startsWith(`/v1/users/${bob.userId}`);
  let program = await again();
  lie = (answer, path) => (isBob(path) ? 500 : answer);
  await assert.rejects(program.sessions.describe(id, called("Mine")));
  assert.equal(await title(id, program), undefined, "no title now");
  lie = undefined;
  assert.equal(await title(id, program), "By an admin");
  // What was judged before is not asked for again.
  program = await again();
  lie = (answer, path) => (isBob(path) ? 500 : answer);
  assert.equal(await title(id, program), "By an admin");
  // A server that shows another account in his place says that it does not count, and prevents nothing.
  await forget(id);
  const { publicKey } = await SigningKey.generate();
  lie = (answer, path) => (path === `/v1/users/${bob.userId}` ? { ...answer, publicKey } : answer);
  assert.equal(await title(id, program), undefined);
  await program.sessions.describe(id, called("Mine"));
  lie = undefined;
  assert.equal(await title(id), "Mine");
});

test("a server that was restored takes no title away", async () => {
  const { id } = await ann.sessions.create({ title: "Plans" });
  await ann.sessions.share(id, bob.userId, "edit");
  await ann.sessions.describe(id, called("Next"));
  // This device has seen more than the server has.
  const behind = (versions: number): Promise<void> =>
    store.update<Json>(`seen title ${id}`, (seen) => ({ ...seen, version: seen.version + versions }));
  await behind(3);
  assert.equal(await title(id), undefined);
  await ann.sessions.unshare(id, bob.userId);
  assert.deepEqual([await title(id), (await ann.sessions.read(id)).metadataVersion], ["Next", 3]);
  await behind(2);
  await ann.sessions.describe(id, (metadata) => ({ ...metadata, more: 1 }));
  const session = await ann.sessions.read(id);
  assert.deepEqual([await ann.sessions.metadata(session), session.metadataVersion], [{ title: "Next", more: 1 }, 6]);
});

test("a version that is far ahead ends no titles", async () => {
  const session = await ann.sessions.create({ title: "Plans" });
  const ring = await ann.sessions.ring(session);
  for (const metadataVersion of [2 ** 50, Number.MAX_SAFE_INTEGER]) {
    const body = JSON.stringify({ title: "Far" });
    const metadata = await sealMetadata(ring, session.id, metadataVersion, { body, user: ann.userId }, ann.keys.signer);
    lie = (answer, path) => (path === `/v1/sessions/${session.id}` ? { ...answer, metadata, metadataVersion } : answer);
    await title(session.id);
    await assert.rejects(ann.sessions.describe(session.id, called("Farther")));
    lie = undefined;
    assert.equal(await title(session.id), "Plans");
  }
  await ann.sessions.describe(session.id, called("Next"));
  assert.equal(await title(session.id), "Next");
});

test("what a machine says of its session is passed on where the machine is not known", async () => {
  const { id } = await ann.sessions.create({ title: "Plans" });
  const machine = await SigningKey.generate();
  const ring = (await ann.sessions.ring(await ann.sessions.read(id))).next();
  const { contents } = await ann.own();
  const said = { body: JSON.stringify({ path: "/srv", agent: "claude" }), user: ann.userId };
  const body = {
    encryptionKey: await sealRing(ring, await contents.publicKey(), bindings.session(id, ann.userId, "m"), ann.keys.signer),
    expectedKeyEpoch: 1,
    contentEpoch: contents.epoch,
    metadata: await sealMetadata(ring, id, 2, said, machine),
    expectedMetadataVersion: 1,
  };
  await ann.client.call("PATCH", "/v1/sessions/{id}", { path: { id }, body });
  // Only a machine makes a session that is hosted.
  await store.update(`session ${id}`, () => undefined);
  lie = (answer, path) => (path === `/v1/sessions/${id}` ? { ...answer, hosted: true, machineId: "m" } : answer);
  await ann.sessions.describe(id, called("Titled"));
  const session = await ann.sessions.read(id);
  const signed = await openMetadata(await ann.sessions.ring(session), id, session.metadataVersion, session.metadata);
  lie = undefined;
  assert.deepEqual([signed.body, signed.key], [JSON.stringify({ title: "Titled" }), ann.keys.publicKey]);
  assert.equal((await partOf(signed, id, machine.publicKey))?.body, said.body);
});
