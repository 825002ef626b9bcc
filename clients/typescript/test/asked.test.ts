// What the server says of a session's key makes at most one an hour, prevents none, and stops no user.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Account, DeviceKeys, MemoryStore } from "@ensemble/client/account";
import { startServer, type Server } from "./server.js";

let server: Server;
let bob: Account;
before(async () => {
  server = await startServer();
  bob = (await person("Bob")).account;
});
after(() => server?.stop());

// JSON of any shape.
type Json = any;

interface Person {
  account: Account;
  store: MemoryStore;
  /** What the server says of sessions. */
  says: { lie: ((session: Json) => Json) | undefined };
}

async function person(name: string): Promise<Person> {
  const [store, says]: [MemoryStore, Person["says"]] = [new MemoryStore(), { lie: undefined }];
  const lying: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    const isSession = /^\/v1\/sessions\/[^/]+$/.test(new URL(String(input)).pathname);
    if (!says.lie || !isSession || (init?.method ?? "GET") !== "GET") return response;
    const session = (await response.json()) as Json;
    return Response.json({ ...session, ...says.lie(session) }, { status: response.status });
  };
  return { account: await Account.create({ base: server.url, store, name, fetch: lying }), store, says };
}

const retitle = (account: Account, id: string, title: string) =>
  account.sessions.describe(id, (metadata) => ({ ...metadata, title }));
const epochOf = async ({ account }: Person, id: string): Promise<number> =>
  (await account.sessions.ring(await account.sessions.read(id))).epoch;

/** Adds a device to an account. It can be removed again. */
async function withPhone(account: Account): Promise<string> {
  const { publicKey, boxKey, signer } = await DeviceKeys.generate();
  await account.devices.change((devices) => [...devices, { key: publicKey, boxKey, role: "linked" }], [signer]);
  return publicKey;
}
const strike = (account: Account, phone: string) =>
  account.devices.change((devices) => devices.filter(({ key }) => key !== phone));

/** Moves the times of the keys back that were made of a session. */
const pass = ({ store }: Person, id: string, milliseconds: number): Promise<void> =>
  store.update<Json>(`session ${id}`, ({ asked, renewed, ...known }: Json) => ({
    ...known,
    asked: asked === undefined ? undefined : asked - milliseconds,
    renewed: Object.fromEntries(Object.entries(renewed ?? {}).map(([user, at]) => [user, Number(at) - milliseconds])),
  }));

test("a server that always asks for a new key gets one an hour, and a removal makes one at once", async () => {
  const ann = await person("Ann");
  const { id } = await ann.account.sessions.create({ title: "Plums" });
  const write = async (times: number): Promise<number> => {
    for (let writes = 0; writes < times; writes++) await retitle(ann.account, id, `Title ${writes}`);
    return epochOf(ann, id);
  };
  ann.says.lie = () => ({ rekeyNeeded: true });
  assert.equal(await write(4), 2);
  await pass(ann, id, 3_590_000);
  assert.equal(await write(2), 2, "the hour is not over");
  await strike(ann.account, await withPhone(ann.account));
  assert.equal(await write(3), 3, "a removal waits for nothing");
  await pass(ann, id, 20_000);
  assert.equal(await write(3), 4, "the next hour");
  await strike(ann.account, await withPhone(ann.account));
  ann.says.lie = () => ({ rekeyNeeded: false, contentEpoch: 2 ** 31, updatedAt: "2000-01-01T00:00:00.000Z", online: false });
  assert.equal(await write(2), 5, "the server prevents no key");
});

test("a guest who adds and removes devices makes one key an hour", async () => {
  const [ann, carl] = [await person("Ann"), await person("Carl")];
  const { id } = await ann.account.sessions.create({ title: "Plums" });
  for (const { userId } of [bob, carl.account]) await ann.account.sessions.share(id, userId, "edit");
  const removal = async (account: Account): Promise<number> => {
    await strike(account, await withPhone(account));
    // The owner reads the lists of others again after this time.
    await ann.account.people.list(account.userId, 0);
    await retitle(ann.account, id, "Pears");
    return epochOf(ann, id);
  };
  assert.equal(await removal(bob), 2);
  assert.equal(await removal(bob), 2, "the second one waits");
  assert.equal(await removal(carl.account), 3, "another guest does not wait for it");
  assert.equal(await removal(carl.account), 3);
  await strike(ann.account, await withPhone(ann.account));
  await retitle(ann.account, id, "a removal of the owner");
  assert.equal(await epochOf(ann, id), 4);
  assert.equal(await removal(bob), 4);
  await pass(ann, id, 3_600_000);
  await retitle(ann.account, id, "the next hour");
  assert.equal(await epochOf(ann, id), 5);
});
