// Machines on the real server: each has its name from the signed list, and is removed with its computer.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { newId, Refused } from "@ensemble/client";
import { Account, DeviceKeys, MemoryStore, recover } from "@ensemble/client/account";
import type { ListedDevice } from "@ensemble/client/lists";
import { bindings, KeyRing, purposes, sealJson, sealRing } from "@ensemble/client/seal";
import { Liar } from "./lying.js";
import { startServer, type Server } from "./server.js";

let server: Server;
before(async () => (server = await startServer()));
after(() => server?.stop());

// JSON of any shape.
type Json = any;

const create = (name: string): Promise<Account> => Account.create({ base: server.url, store: new MemoryStore(), name });

/** Registers a machine that calls itself `host`. */
async function registered(by: Account, host: string): Promise<string> {
  const [id, ring, { client }] = [`m-${newId()}`, KeyRing.generate(), by];
  const { list } = await by.own();
  const metadata = await sealJson(ring, purposes.machineMetadata(id), { host, os: "linux", arch: "arm64" });
  const encryptionKey = await sealRing(ring, list.body.contentPublicKey, bindings.machine(id), by.keys.signer);
  await client.call("POST", "/v1/machines", { body: { id, metadata, encryptionKey, contentEpoch: list.body.contentEpoch } });
  return id;
}

/** Adds a device to a person's list. */
async function listed(account: Account, name: string): Promise<DeviceKeys> {
  const keys = await DeviceKeys.generate();
  await add(account, { key: keys.publicKey, boxKey: keys.boxKey, role: "linked" }, name, keys);
  return keys;
}

/** Adds a registered machine to the list, on the computer of the device `by`. */
async function machine(account: Account, called: string, by: string, host = called): Promise<{ id: string; key: string }> {
  const [keys, id] = [await DeviceKeys.generate(), await registered(account, host)];
  const entry: ListedDevice = { key: keys.publicKey, boxKey: keys.boxKey, role: "machine", machineId: id, by };
  await add(account, entry, called, keys);
  return { id, key: keys.publicKey };
}

async function add(account: Account, entry: ListedDevice, called: string, { signer }: DeviceKeys): Promise<void> {
  await account.devices.change(
    async (devices, names) => {
      await names.give(entry, called);
      return [...devices, entry];
    },
    [signer],
  );
}

/** The same account in another program. Its answers can be changed, and it knows no names. */
async function elsewhere(account: Account): Promise<{ again: Account; liar: Liar }> {
  const [liar, store] = [new Liar(), new MemoryStore()];
  await account.keys.keep(store, { base: server.url, name: "again", userId: account.userId });
  const { signed } = (await account.own()).list;
  await store.update(`list ${account.userId}`, () => signed);
  const again = await Account.open({ base: server.url, store, fetch: liar.fetch });
  assert.ok(again);
  return { again, liar };
}

test("a machine is agreed to once in a directory, and one with another key is a new one", async () => {
  const ann = await create("Laptop");
  const desk = await machine(ann, "desk", ann.keys.publicKey);
  const agreed = (directory: string): Promise<boolean | undefined> => ann.machines.agreed(desk.id, directory);
  assert.equal(await agreed("/a"), undefined);
  await ann.machines.agree(desk.id, "/a", false);
  assert.deepEqual([await agreed("/a"), await agreed("/b")], [false, undefined], "bypass is another question");
  await ann.machines.agree(desk.id, "/a", true);
  await ann.machines.agree(desk.id, "/a", false);
  assert.equal(await agreed("/a"), true, "it stays agreed to");
  for (let at = 1; at < 1_000; at++) await ann.machines.agree(desk.id, `/${at}`, false);
  assert.equal(await agreed("/a"), true);
  await ann.machines.agree(desk.id, "/1000", false);
  assert.equal(await agreed("/a"), undefined, "the oldest is forgotten");

  const [key, other] = [desk.key, await DeviceKeys.generate()];
  await ann.machines.agree(desk.id, "/a", true);
  const entry = { key: other.publicKey, boxKey: other.boxKey, role: "machine" as const, machineId: desk.id };
  await ann.devices.change((devices) => [...devices.filter((one) => one.key !== key), entry], [other.signer]);
  assert.equal(await agreed("/a"), undefined, "a machine with another key is a new one");
  await ann.machines.agree("m-nowhere", "/a", true);
  assert.equal(await ann.machines.agreed("m-nowhere", "/a"), undefined, "what is not listed has no key");
});

test("a machine is called as the list has it, whatever it and the server say", async () => {
  const ann = await create("Laptop");
  const [desk, tower] = [
    await machine(ann, "Desk", ann.keys.publicKey, "prod"),
    await machine(ann, "tower", ann.keys.publicKey, "desk"),
  ];
  const stray = await registered(ann, "desk");
  const nameOf = async (account: Account, id: string): Promise<unknown> => {
    const { name, hasOtherName, isListed } = await account.machines.called(id);
    return isListed ? (hasOtherName ? "the server gives another name" : name) : "not in your list";
  };
  const names = (account: Account): Promise<unknown[]> =>
    Promise.all([desk.id, tower.id, stray].map((id) => nameOf(account, id)));
  assert.deepEqual(await names(ann), ["desk", "tower", "not in your list"]);
  const all = await ann.machines.all();
  const one = all.find(({ id }) => id === desk.id);
  assert.ok(one);
  assert.equal((await ann.machines.called(desk.id)).ref, one.ref);
  assert.equal((await ann.machines.metadata(one)).os, "linux");

  const other = "the server gives another name";
  const { again, liar } = await elsewhere(ann);
  const [ofDesk, ofTower] = [{ key: desk.key }, { key: tower.key }];
  const swap = ({ devices, ...rest }: Json): Json => {
    const named = (key: string): Json => devices.find(({ publicKey }: Json) => publicKey === key);
    const [{ name, nameSalt }, its] = [named(ofDesk.key), named(ofTower.key)];
    const changed = devices.map((device: Json) => {
      if (device.publicKey === ofDesk.key) return { ...device, name: its.name, nameSalt: its.nameSalt };
      return device.publicKey === ofTower.key ? { ...device, name, nameSalt } : device;
    });
    return { ...rest, devices: changed };
  };
  liar.lie = (answer, { pathname }, method) => (method === "GET" && pathname === "/v1/devices" ? swap(answer) : answer);
  assert.deepEqual(await names(again), [other, other, "not in your list"]);
  liar.lie = undefined;
  await again.own(0);
  assert.deepEqual(await names(again), ["desk", "tower", "not in your list"]);

  // A server that hides one, and shows another one whose id is its name.
  const hidden = async (): Promise<string[]> => again.machines.hidden(await again.machines.all());
  assert.deepEqual(await hidden(), []);
  const made = (machine: Json): Json => (machine.id === desk.id ? { ...machine, id: "desk", ref: undefined } : machine);
  liar.lie = ({ machines, ...rest }, { pathname }) =>
    pathname === "/v1/machines" ? { ...rest, machines: machines.map(made) } : { ...rest, ...(machines && { machines }) };
  assert.deepEqual(await hidden(), ["desk"]);
});

test("a primary device renames a machine, and no two have one name", async () => {
  const ann = await create("Laptop");
  const { id, key } = await machine(ann, "Laptop", ann.keys.publicKey);
  const name = async (): Promise<string | null> => (await ann.machines.called(id)).name;
  assert.equal(await name(), "laptop-2");
  const isRefused = (text: RegExp) => (error: unknown) => error instanceof Refused && text.test(error.message);
  for (const bad of ["", "My desk", "-desk", "Desk", "x".repeat(64)])
    await assert.rejects(ann.devices.rename(key, bad), isRefused(/lower-case letters/), bad);
  await assert.rejects(ann.devices.rename(key, "laptop"), isRefused(/Another device is called laptop/));
  await ann.devices.rename(key, " build.box ");
  assert.equal(await name(), "build.box");
});

test("a machine goes with the computer on which it is, in the same list", async () => {
  const ann = await create("Laptop");
  const phone = await listed(ann, "Phone");
  const [its, own] = [await machine(ann, "tower", phone.publicKey), await machine(ann, "desk", ann.keys.publicKey)];
  const shown = (await ann.devices.all()).filter(({ role }) => role === "machine");
  assert.deepEqual(shown.map(({ name, by, machineId }) => [name, by, machineId]).sort(), [
    ["desk", ann.keys.publicKey, own.id],
    ["tower", phone.publicKey, its.id],
  ]);
  const { version } = (await ann.own()).list;
  await ann.devices.remove([phone.publicKey]);
  const { list } = await ann.own(0);
  assert.deepEqual([list.version, list.machine(its.id), list.machine(own.id)?.key], [version + 1, undefined, own.key]);
  assert.deepEqual(
    (await ann.machines.all()).map(({ id }) => id),
    [own.id],
    "the server has it no more",
  );
});

test("recovery names the machines, and one goes with its computer", async () => {
  const ann = await create("Laptop");
  const { id, key } = await machine(ann, "desk", ann.keys.publicKey);
  const { words, confirm } = await ann.devices.newWords();
  await confirm();
  const found = await recover(words.join(" "), { base: server.url, store: new MemoryStore(), name: "Tablet" });
  const { ref } = await ann.machines.called(id);
  const desk = found.devices.find(({ role }) => role === "machine");
  assert.deepEqual([desk?.name, desk?.ref, desk?.by, desk?.key], ["desk", ref, ann.keys.publicKey, key]);
  const back = await found.finish([ann.keys.publicKey]);
  const { list } = await back.own(0);
  assert.deepEqual([list.machine(id), list.device(ann.keys.publicKey)], [undefined, undefined]);
});
