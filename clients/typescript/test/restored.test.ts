// A server that was restored from a backup has lost the newest device lists. It is played by a connection that hides them.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Distrust, Refused } from "@ensemble/client";
import { Account, join, MemoryStore } from "@ensemble/client/account";
import { startServer, type Server } from "./server.js";

let server: Server;
before(async () => (server = await startServer()));
after(() => server?.stop());

// JSON of any shape.
type Json = any;

/** A connection to a server that has only the first lists of an account, until it gets the others again. */
class Restored {
  versions: number | undefined;
  /** The calls that gave it lists again. */
  readonly sent: Json[] = [];
  /** It has lost all names. */
  isNameless = false;
  /** Called when it has taken a list, in the place of its answer. */
  taken: (() => void) | undefined;
  /** What else is changed in the lists that it shows. */
  change: (lists: Json[]) => Json[] = (lists) => lists;

  readonly fetch: typeof fetch = async (input, init) => {
    const { pathname, searchParams } = new URL(String(input));
    const response = await fetch(input, init);
    if (pathname === "/v1/devices" && init?.method === "POST" && this.taken) {
      this.taken();
      return new Promise(() => undefined);
    }
    if (pathname === "/v1/devices" && init?.method === "POST") {
      const body = JSON.parse(String(init.body));
      if (body.lists) {
        this.sent.push(body);
        if (response.ok) this.versions = undefined;
      }
    }
    const { versions } = this;
    if (versions === undefined || !response.ok) return response;
    if (pathname === "/v1/devices" && this.isNameless && (init?.method ?? "GET") === "GET") {
      const { devices, ...rest }: Json = await response.json();
      return Response.json({ ...rest, devices: devices.map((one: Json) => ({ ...one, name: null, nameSalt: null })) });
    }
    if (pathname === "/v1/devices/content-ring") return Response.json({ ...(await response.json()), version: versions });
    if (!/^\/v1\/users\/[^/]+\/devices$/.test(pathname)) return response;
    const page: Json = await response.json();
    const count = Math.max(0, versions - Number(searchParams.get("after") ?? 0));
    return Response.json({ lists: this.change(page.lists.slice(0, count)), nextCursor: null });
  };
}

async function account(): Promise<{ ann: Account; restored: Restored }> {
  const restored = new Restored();
  const ann = await Account.create({ base: server.url, store: new MemoryStore(), name: "Ann", fetch: restored.fetch });
  return { ann, restored };
}

/** The next list of the account. */
const words = (ann: Account): Promise<void> => ann.devices.newWords().then(({ confirm }) => confirm());

test("a primary device gives the server the lists that it lacks", async () => {
  const { ann, restored } = await account();
  await words(ann);
  await words(ann);
  restored.versions = 1;
  assert.equal((await ann.own(0)).list.version, 3);
  assert.equal(restored.sent.length, 1);
  const [{ lists, list, sealed, proofs, names }] = restored.sent;
  assert.equal(list, undefined);
  assert.deepEqual(
    lists.map(({ body }: Json) => JSON.parse(body).version),
    [2, 3],
  );
  const newest = JSON.parse(lists[1].body);
  const openers = newest.devices.map(({ key }: Json) => key);
  assert.deepEqual(Object.keys(sealed).sort(), openers.sort());
  assert.equal(Object.keys(proofs).length, 2, "both words have signed that they are listed");
  assert.deepEqual(
    Object.values(names as Json).map(({ name }: Json) => name),
    ["Ann"],
  );
  await ann.own(0);
  assert.equal(restored.sent.length, 1, "once");
});

/** Another primary device of the account. */
async function laptopOf(ann: Account): Promise<Account> {
  const linking = await ann.devices.link();
  const joining = await join(linking.address, { store: new MemoryStore(), name: "laptop" });
  const asking = await linking.asked();
  assert.ok(await asking.approve(joining.digits, "primary"));
  return joining.finished();
}

/** The names that were sent, by the key of the device. */
const namesOf = ({ names }: Json): Json =>
  Object.fromEntries(Object.entries(names as Json).map(([key, { name }]: [string, Json]) => [key, name]));

test("the names that another primary device has given are sent with the lists", async () => {
  const { ann, restored } = await account();
  const laptop = await laptopOf(ann);
  await laptop.devices.rename(laptop.keys.publicKey, "old laptop");
  await laptop.devices.rename(ann.keys.publicKey, "new laptop");
  assert.equal((await ann.own(0)).list.version, 4);
  // It knows no names of those that it has lost.
  restored.versions = 2;
  restored.isNameless = true;
  assert.equal((await ann.own(0)).list.version, 4);
  const [sent] = restored.sent;
  const expected = { [ann.keys.publicKey]: "new laptop", [laptop.keys.publicKey]: "old laptop" };
  assert.deepEqual([sent.lists.length, namesOf(sent)], [2, expected]);
});

test("names that the server withholds are asked for again while it has them", async () => {
  const { ann, restored } = await account();
  const laptop = await laptopOf(ann);
  await laptop.devices.rename(ann.keys.publicKey, "new laptop");
  [restored.versions, restored.isNameless] = [3, true];
  assert.equal((await ann.own(0)).list.version, 3);
  restored.isNameless = false;
  await ann.own(0);
  [restored.versions, restored.isNameless] = [2, true];
  assert.equal((await ann.own(0)).list.version, 3);
  const expected = { [ann.keys.publicKey]: "new laptop", [laptop.keys.publicKey]: "laptop" };
  assert.deepEqual(restored.sent.map(namesOf), [expected]);
});

test("a server that shows other lists gets nothing", async () => {
  const { ann, restored } = await account();
  const { ann: eve } = await account();
  await words(ann);
  await words(eve);
  await words(ann);
  const others = (await eve.client.call("GET", "/v1/users/{id}/devices", { path: { id: eve.userId } })).lists;
  restored.versions = 2;
  restored.change = (lists) => lists.map((_, at) => others[at]);
  await assert.rejects(ann.own(0), Distrust);
  restored.change = (lists) => lists.map((list) => ({ ...list, body: `${list.body} ` }));
  await assert.rejects(ann.own(0), Distrust);
  assert.deepEqual(restored.sent, []);
});

test("a linked device says that a primary one is needed", async () => {
  const { ann } = await account();
  const restored = new Restored();
  const linking = await ann.devices.link();
  const store = new MemoryStore();
  const joining = await join(linking.address, { store, name: "phone", fetch: restored.fetch });
  const asking = await linking.asked();
  assert.ok(await asking.approve(joining.digits, "linked"));
  const phone = await joining.finished();
  assert.equal((await phone.own(0)).list.version, 2);
  await words(ann);
  assert.equal((await phone.own(0)).list.version, 3);
  restored.versions = 2;
  await assert.rejects(phone.own(0), (error) => error instanceof Refused && /Open a primary device/.test(error.message));
  assert.deepEqual(restored.sent, []);
  restored.versions = undefined;
  assert.equal((await phone.own(0)).list.version, 3);
});

test("what is kept is written only when it is new", async () => {
  let writes = 0;
  class Counting extends MemoryStore {
    override update<T>(name: string, change: (value: T | undefined) => T | undefined): Promise<void> {
      if (name.startsWith("own lists ")) writes++;
      return super.update(name, change);
    }
  }
  const ann = await Account.create({ base: server.url, store: new Counting(), name: "Ann" });
  await ann.own(0);
  writes = 0;
  for (let reads = 0; reads < 3; reads++) await ann.own(0);
  assert.equal(writes, 0);
  await words(ann);
  assert.ok(writes > 0);
});

test("what vouches for a list is not lost when the page is closed before the answer comes", async () => {
  const [restored, store] = [new Restored(), new MemoryStore()];
  const options = { base: server.url, store, name: "Ann", fetch: restored.fetch };
  const closed = await Account.create(options);
  const taken = new Promise<void>((resolve) => (restored.taken = resolve));
  void words(closed);
  await taken;
  restored.taken = undefined;
  const ann = await Account.open(options);
  assert.equal((await ann?.own(0))?.list.version, 2);
  restored.versions = 1;
  assert.equal((await ann?.own(0))?.list.version, 2);
  assert.deepEqual(
    restored.sent.map(({ proofs }) => Object.keys(proofs).length),
    [1],
  );
});
