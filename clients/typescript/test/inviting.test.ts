// Inviting people, against the real server.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Distrust, followHints } from "@ensemble/client";
import { Account, MemoryStore } from "@ensemble/client/account";
import { claimInvite, InviteCode, inviteAnswered, InviteOver } from "@ensemble/client/invites";
import { endInvites, invite, invitesInto, isLoopback, letIn, waiting, type Waiting } from "@ensemble/client/inviting";
import { Liar } from "./lying.js";
import { startServer, type Server } from "./server.js";

let server: Server;
// Each test has accounts of its own.
before(
  async () => (server = await startServer({ env: { LIMIT_NEW_ACCOUNTS: "0", LIMIT_PUBLIC_LINK: "0", LIMIT_SIGN_IN: "0" } })),
);
after(() => server?.stop());

const create = (name: string, store = new MemoryStore()) => Account.create({ base: server.url, store, name });
const never = (error: Error): never => assert.fail(error);

test("of two programs that answer at once, one lets the guest in", async () => {
  const store = new MemoryStore();
  const [ann, bob] = [await create("Ann", store), await create("Bob")];
  const other = await Account.open({ base: server.url, store });
  assert.ok(other);
  const { id } = await ann.sessions.create({ title: "Plums" });
  const { address } = await invite(ann, { session: id, level: "edit", may: "prompt" }, 1);
  const code = InviteCode.fromAddress(address);
  assert.deepEqual(await waiting(other, never), []);
  await claimInvite(bob, code, "Bob");
  const [[one], [two]] = [await waiting(ann, never), await waiting(other, never)];
  assert.ok(one && two);
  assert.deepEqual([one.name, one.user, two.level, two.may], ["Bob", bob.userId, "edit", "prompt"]);
  const receipts = await Promise.all([letIn(ann, one, true), letIn(other, two, true)]);
  assert.deepEqual(receipts.map((receipt) => receipt === undefined).sort(), [false, true]);
  const { session, owner } = await inviteAnswered(bob, code);
  assert.deepEqual([session, owner], [id, ann.userId]);
  assert.deepEqual(
    (await ann.sessions.shares(id)).map(({ userId, accessLevel }) => [userId, accessLevel]),
    [[bob.userId, "edit"]],
  );
  const [listed] = await invitesInto(other, id);
  assert.deepEqual([listed?.state, listed?.name], ["answered", "Bob"]);
  assert.equal(await ann.people.called(bob.userId), "Bob");
  assert.deepEqual(await waiting(ann, never), []);
});

test("an invitation that was ended, and one whose secret is not known, let no one in", async () => {
  const [ann, bob] = [await create("Ann"), await create("Bob")];
  const { id } = await ann.sessions.create({ title: "Plums" });
  const ended = InviteCode.fromAddress((await invite(ann, { session: id, level: "view" }, 1)).address);
  await endInvites(ann, id);
  await assert.rejects(claimInvite(bob, ended, "Bob"), InviteOver);
  assert.deepEqual(await invitesInto(ann, id), []);
  const { address, id: guessed } = await invite(ann, { session: id, level: "view" }, 1);
  const { secret } = await InviteCode.newSecret();
  await claimInvite(bob, InviteCode.of(InviteCode.fromAddress(address).base, guessed, secret), "Bob");
  const forged: Error[] = [];
  assert.deepEqual(await waiting(ann, (error) => forged.push(error)), []);
  assert.ok(forged[0] instanceof Distrust);
  assert.deepEqual([await invitesInto(ann, id), await ann.sessions.shares(id)], [[], []]);
});

test("an invitation ends in time where the server says that it is good", async () => {
  const [ann, bob] = [await create("Ann"), await create("Bob")];
  const { id } = await ann.sessions.create({ title: "Plums" });
  const made = await invite(ann, { session: id, level: "view" }, 1);
  await claimInvite(bob, InviteCode.fromAddress(made.address), "Bob");
  const [guest] = await waiting(ann, never);
  assert.ok(guest);
  // The server's time is as before.
  await ann.pins.share((state) => {
    const invites = state["invites"] as Record<string, object>;
    const expiresAt = new Date(Date.now() - 86_400_001).toISOString();
    return { ...state, invites: { ...invites, [made.id]: { ...invites[made.id], expiresAt } } };
  });
  assert.equal(await letIn(ann, guest, false), undefined);
  await assert.rejects(letIn(ann, guest, true), /has ended/);
  assert.deepEqual(await waiting(ann, never), []);
  assert.deepEqual([await invitesInto(ann, id), await ann.sessions.shares(id)], [[], []]);
});

test("no guest has a name that looks like that of another one", async () => {
  const ann = await create("Ann");
  const { id } = await ann.sessions.create({ title: "Plums" });
  for (const [given, expected] of [
    ["Bob", "Bob"],
    [" Bo\u200bb\n", "Bob (2)"],
    [" \u200b", "Guest"],
  ] as const) {
    const guest = await create("Eve");
    const { address } = await invite(ann, { session: id, level: "view" }, 1);
    await claimInvite(guest, InviteCode.fromAddress(address), given);
    const [asked] = await waiting(ann, never);
    assert.ok(asked);
    assert.equal(asked.name, expected);
    await letIn(ann, asked, true);
    assert.equal(await ann.people.called(guest.userId), expected);
  }
});

test("an invitation leads to the address at which others reach the server", async () => {
  const liar = new Liar();
  const ann = await Account.create({ base: server.url, store: new MemoryStore(), name: "Ann", fetch: liar.fetch });
  const { id } = await ann.sessions.create({ title: "Plums" });
  const base = async (): Promise<string> =>
    InviteCode.fromAddress((await invite(ann, { session: id, level: "view" }, 1)).address).base;
  assert.ok(isLoopback(await base()), "it has no other address");
  const more = ["javascript:alert(1)", "http://lan.example", "https://ensemble.example"];
  liar.lie = (answer, { pathname }) =>
    pathname === "/v1/auth/challenge" ? { ...answer, publicOrigins: [...answer.publicOrigins, ...more] } : answer;
  assert.equal(await base(), "https://ensemble.example");
});

test("the command line joins by an invitation of the page", async () => {
  const ann = await create("Ann");
  const cat = JSON.parse(await server.ensemble("cat", "login", "--json", "--name", "Catherine")) as { id: string };
  const { id } = await ann.sessions.create({ title: "Plums" });
  const { address } = await invite(ann, { session: id, level: "view" }, 1);
  const joining = server.begin("cat", "join", "--name", "Cat");
  joining.stdin.end(`${address}\n`);
  const joined = new Promise((resolve) => joining.once("exit", resolve));
  let found: Waiting[] = [];
  for await (const { kind } of followHints(ann.client, { signal: AbortSignal.timeout(120_000) })) {
    if (kind === "invite" || kind === "all") found = await waiting(ann, never);
    if (found.length > 0) break;
  }
  assert.notEqual(found[0] && (await letIn(ann, found[0], false)), undefined);
  assert.equal(await joined, 0);
  assert.deepEqual([found[0]?.user, await ann.people.called(cat.id)], [cat.id, "Cat"]);
});
