// Two tabs of one browser that do the same at once. A server of its own, because one makes ten accounts an hour for an address.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Refused } from "@ensemble/client";
import { Account, join, MemoryStore } from "@ensemble/client/account";
import { startServer, type Server } from "./server.js";

let server: Server;
before(async () => (server = await startServer()));
after(() => server?.stop());

const create = (name: string, store: MemoryStore) => Account.create({ base: server.url, store, name });
const signal = () => AbortSignal.timeout(120_000);

test("two tabs that make an account or link at once keep one key", async () => {
  const store = new MemoryStore();
  const made = await Promise.allSettled([create("one tab", store), create("another tab", store)]);
  assert.deepEqual(
    made.map(({ status }) => status),
    ["fulfilled", "rejected"],
  );
  const [first] = made;
  assert.ok(first?.status === "fulfilled");
  assert.equal((await Account.stored(store))?.publicKey, first.value.keys.publicKey);

  const [linking, other] = [await first.value.devices.link(), await first.value.devices.link()];
  const tabs = new MemoryStore();
  const joining = await join(linking.address, { store: tabs, name: "A tab" });
  const asking = await linking.asked(signal());
  assert.ok(await asking.approve(joining.digits, "linked"));
  // Another tab begins with another address before this one has noticed.
  await join(other.address, { store: tabs, name: "Another tab" });
  await assert.rejects(joining.finished(signal()), Refused);
  assert.equal(await Account.stored(tabs), undefined, "no account with the keys of another device");
});
