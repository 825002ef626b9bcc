// Names of devices at the real server: they are shown as the signed list has them, and each next list passes them on.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Refused } from "@ensemble/client";
import { Account, DeviceKeys, join, MemoryStore, recover } from "@ensemble/client/account";
import type { ListedDevice, Names } from "@ensemble/client/lists";
import { startServer, type Server } from "./server.js";

let server: Server;
before(async () => (server = await startServer()));
after(() => server?.stop());

// JSON of any shape.
type Json = any;

/** What the server cannot change of a device without being noticed. */
const keyOf = ({ publicKey, boxKey, role }: Json): Json => ({ publicKey, boxKey, role });

/** A connection to a server that shows devices as it likes. */
class Lying {
  lie: ((devices: Json[]) => Json[]) | undefined;

  readonly fetch: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    const isList = new URL(String(input)).pathname === "/v1/devices" && (init?.method ?? "GET") === "GET";
    if (!this.lie || !isList || !response.ok) return response;
    const answer = (await response.json()) as Json;
    return Response.json({ ...answer, devices: this.lie(answer.devices) });
  };
}

const create = (name: string, store = new MemoryStore()): Promise<Account> => Account.create({ base: server.url, store, name });

/** Another device of an account, listed without a linking. */
async function listed(first: Account, name: string, lying = new Lying()): Promise<Account> {
  const store = new MemoryStore();
  const keys = await (await DeviceKeys.generate()).keep(store, { base: server.url, name, userId: first.userId });
  const add = async (devices: ListedDevice[], names: Names): Promise<ListedDevice[]> => {
    const entry: ListedDevice = { key: keys.publicKey, boxKey: keys.boxKey, role: "linked" };
    await names.give(entry, name);
    return [...devices, entry];
  };
  await first.devices.change(add, [keys.signer]);
  const list = (await first.own()).list.signed;
  await store.update(`list ${first.userId}`, () => list);
  const account = await Account.open({ base: server.url, store, fetch: lying.fetch });
  assert.ok(account);
  return account;
}

/** The names by which an account's devices are shown. */
async function shown(account: Account): Promise<(string | null)[]> {
  const other = "the server gives another name";
  return (await account.devices.all()).map(({ name, hasOtherName }) => (hasOtherName ? other : name)).sort();
}

test("a server that swaps two names gives no device the name of another", async () => {
  const store = new MemoryStore();
  const ann = await create("Laptop", store);
  const lying = new Lying();
  const phone = await listed(ann, "Phone", lying);
  const other = "the server gives another name";
  const lies: [string, (devices: Json[]) => Json[]][] = [
    ["swapped", ([one, two]) => [one, two].map((own) => ({ ...(own === one ? two : one), ...keyOf(own) }))],
    ["made up", (devices) => devices.map((own) => ({ ...own, name: "Tablet" }))],
    ["withheld", (devices) => devices.map((own) => ({ ...own, name: null, nameSalt: null }))],
  ];
  for (const [what, lie] of lies) {
    lying.lie = lie;
    assert.deepEqual(await shown(phone), [other, other], what);
  }
  lying.lie = undefined;
  assert.deepEqual(await shown(phone), ["Laptop", "Phone"]);
  for (const [what, lie] of lies) {
    lying.lie = lie;
    assert.deepEqual(await shown(phone), ["Laptop", "Phone"], `${what}, and they are known`);
  }

  // A primary device that knows no names gives none: the other one could have it.
  const forgetful = new MemoryStore();
  for (const name of ["device", `list ${ann.userId}`]) {
    const kept = await store.get(name);
    await forgetful.update(name, () => kept);
  }
  const liar = new Lying();
  const again = await Account.open({ base: server.url, store: forgetful, fetch: liar.fetch });
  assert.ok(again);
  liar.lie = (devices) => devices.map((own) => (own.current ? own : { ...own, name: "Tablet" }));
  await assert.rejects(again.devices.rename(again.keys.publicKey, "Phone"), Refused);
  liar.lie = undefined;
  await again.devices.rename(again.keys.publicKey, "Old laptop");
  assert.deepEqual(await shown(ann), ["Old laptop", "Phone"]);
});

test("a primary device renames, and a linked one reads why it does not", async () => {
  const ann = await create("Laptop");
  const phone = await listed(ann, "Phone");
  const key = phone.keys.publicKey;
  const before = (await ann.own()).list;
  await ann.devices.rename(key, "  Old\u200b phone ");
  assert.deepEqual(
    [await shown(ann), await shown(phone)],
    [
      ["Laptop", "Old phone"],
      ["Laptop", "Old phone"],
    ],
  );
  const { list } = await phone.own(0);
  assert.deepEqual([list.version, list.body.contentEpoch], [before.version + 1, before.body.contentEpoch]);
  // In other letters it is the same device's name.
  await ann.devices.rename(key, "OLD PHONE");
  assert.deepEqual(await shown(phone), ["Laptop", "OLD PHONE"]);

  const isRefused = (text: RegExp) => (error: unknown) => error instanceof Refused && text.test(error.message);
  await assert.rejects(ann.devices.rename(key, "lapTOP"), isRefused(/Another device is called lapTOP/));
  await assert.rejects(ann.devices.rename(key, " \u2066 "), isRefused(/The name is empty/));
  await assert.rejects(ann.devices.rename("A".repeat(43), "Tablet"), isRefused(/removed/));
  await assert.rejects(phone.devices.rename(key, "Mine"), isRefused(/linked device, and only a primary one/));
  assert.equal((await ann.own(0)).list.version, list.version + 1, "nothing else was signed");
});

test("linking, new words, a removal and recovery keep the names of the others", async () => {
  const ann = await create("Laptop");
  const linking = await ann.devices.link();
  const joining = await join(linking.address, { store: new MemoryStore(), name: "laptop" });
  const asking = await linking.asked(AbortSignal.timeout(120_000));
  assert.ok(await asking.approve(joining.digits, "linked"));
  const phone = await joining.finished(AbortSignal.timeout(120_000));
  const own = (await phone.devices.all()).find(({ current }) => current);
  assert.deepEqual([own?.name, await shown(ann)], ["laptop 2", ["Laptop", "laptop 2"]]);

  const { words, confirm } = await ann.devices.newWords();
  await confirm();
  const tablet = await listed(ann, "Tablet");
  assert.deepEqual(await shown(ann), ["Laptop", "Tablet", "laptop 2", null].sort());
  await ann.devices.change((devices) => devices.filter(({ key }) => key !== tablet.keys.publicKey));
  assert.deepEqual(await shown(phone), ["Laptop", "laptop 2", null].sort());

  const found = await recover(words.join(" "), { base: server.url, store: new MemoryStore(), name: "LAPTOP" });
  assert.deepEqual(found.devices.map(({ name }) => name).sort(), ["Laptop", "laptop 2"]);
  const back = await found.finish();
  const all = ["LAPTOP 3", "Laptop", "laptop 2", null].sort();
  assert.deepEqual([await shown(back), await shown(ann), await shown(phone)], [all, all, all]);
});
