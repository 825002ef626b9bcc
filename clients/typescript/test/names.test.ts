// Names of devices and machines and their commitments, against the vectors.

import assert from "node:assert/strict";
import test from "node:test";
import * as lists from "@ensemble/client/lists";
import { encode, vectors } from "./vectors.js";

const given = vectors("crates/protocol/vectors/names.json");

test("the vectors hold", async () => {
  for (const { commitment, ...name } of given.names) {
    assert.ok(lists.isName(name.name), name.name);
    assert.equal(await lists.commitment(name), commitment, name.name);
  }
  for (const bad of [...given.bad, "half \ud83d"]) assert.ok(!lists.isName(bad), JSON.stringify(bad));
  const isSame = ([one, other]: [string, string]): boolean => lists.foldedName(one) === lists.foldedName(other);
  assert.deepEqual([given.same.every(isSame), given.different.some(isSame)], [true, false]);
  for (const [text, nearest] of given.nearest) assert.equal(lists.nearestName(text), nearest ?? undefined, text);
  assert.equal(lists.nearestName("half \ud83d"), "half");
  for (const [text, nearest] of given.machineNearest) assert.equal(lists.nearestMachineName(text), nearest, text);
  for (const good of given.machineGood) assert.ok(lists.isMachineName(good), good);
  for (const bad of given.machineBad) assert.ok(!lists.isMachineName(bad), JSON.stringify(bad));
  assert.equal(await lists.commitment({ salt: "short", name: "laptop" }), undefined);
});

const device = (number: number, role: lists.Role = "linked"): lists.ListedDevice => ({
  key: encode(new Uint8Array(32).fill(number)),
  boxKey: "",
  role,
});

test("a device gets a name that no other one has", async () => {
  for (const [role, numbered] of [
    ["linked", given.numbered],
    ["machine", given.machineNumbered],
  ] as [lists.Role, [string, string[], string][]][]) {
    for (const [wanted, taken, expected] of numbered) {
      const [names, devices] = [new lists.Names(), [...taken.map((_, at) => device(at)), device(taken.length, role)]];
      for (const [at, name] of [...taken, wanted].entries()) await names.give(devices[at]!, name);
      assert.equal(names.get(devices.at(-1)!.key), expected);
      const opened = await lists.Names.opened({ devices }, names.given);
      assert.deepEqual([opened.given, opened.areAllOf({ devices })], [names.given, true]);
    }
  }
  const [names, nameless] = [new lists.Names(), device(1)];
  await names.give(nameless, "\u200b ");
  assert.deepEqual([nameless.name, names.given], [undefined, {}]);
});

test("a name that does not open its commitment is none, and of two devices with one name none has it", async () => {
  const [names, others, devices] = [new lists.Names(), new lists.Names(), [device(1), device(2), device(3)]];
  const [one, two, three] = devices as [lists.ListedDevice, lists.ListedDevice, lists.ListedDevice];
  await names.give(one, "laptop");
  await names.give(two, "phone");
  const [first, second] = [names.given[one.key]!, names.given[two.key]!];
  const swapped = await lists.Names.opened({ devices }, { [one.key]: second, [two.key]: first });
  assert.deepEqual(swapped.given, {});
  const half = await lists.Names.opened({ devices }, { [one.key]: first });
  assert.deepEqual([half.given, half.areAllOf({ devices })], [{ [one.key]: first }, false]);
  // The name that is kept back could be the one that a new device wants.
  const fresh = device(4);
  await half.give(fresh, "phone");
  assert.deepEqual([fresh.name, half.given], [undefined, { [one.key]: first }]);
  const next = { devices: devices.map((entry) => ({ ...entry })) };
  assert.deepEqual(half.forNext(next), { [one.key]: first });
  assert.deepEqual(
    next.devices.map(({ name }) => name),
    [one.name, undefined, undefined],
  );
  await others.give(three, "LAPTOP");
  const both = await lists.Names.opened({ devices }, { ...names.given, ...others.given });
  assert.deepEqual(both.given, { [two.key]: second });
});

test("a name that no machine may have opens for a device only", async () => {
  const [names, phone] = [new lists.Names(), device(1)];
  await names.give(phone, "My desk");
  const machine = { ...phone, role: "machine" as const };
  const opened = (one: lists.ListedDevice): Promise<lists.Names> => lists.Names.opened({ devices: [one] }, names.given);
  assert.deepEqual([(await opened(phone)).given, (await opened(machine)).given], [names.given, {}]);
});
