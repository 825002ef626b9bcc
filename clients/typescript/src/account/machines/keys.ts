// The keys of machines, under which they say what kind of computer they are.

import { Distrust } from "../../errors.js";
import { makesKeys } from "../../protocol/lists/list.js";
import { KeyRing, openJson, purposes, sealJson } from "../../protocol/seal/ring.js";
import { bindings, openRing, sealRing } from "../../protocol/seal/signed-ring.js";
import type { Context } from "../context.js";
import { everHad } from "../lists.js";
import { allMachines, type Machine } from "./find.js";

/** What a machine says of itself. Its name is in the account's list. Members that are not known here are kept. */
export type MachineMetadata = { os?: string; arch?: string } & Record<string, unknown>;

/** The opened metadata of a machine. It counts only under a key that the machine or a device of the account has made. */
export async function machineMetadata(context: Context, machine: Machine): Promise<MachineMetadata> {
  const { client, userId } = context;
  const { contents, list } = await context.own();
  const { ring, signer } = await contents.openWith((pair) =>
    openRing(machine.encryptionKey, pair, bindings.machine(machine.id)),
  );
  const counts = makesKeys(machine.id);
  const entry = list.device(signer);
  // A device that was removed since may have made it.
  const isOwn = (entry && counts(entry)) || (await everHad(client, userId, list.body.account, signer, counts));
  if (!isOwn) throw new Distrust(`The metadata of machine ${machine.ref} was not sealed by one of your devices.`);
  return openJson(ring, purposes.machineMetadata(machine.id), machine.metadata);
}

/** Gives machines whose keys are from before the newest content key new ones: a removed device would read from a copy of the database
 * what they say of themselves. */
export async function renewKeys(context: Context): Promise<void> {
  const { client, keys } = context;
  const { list } = await context.own();
  const { contentEpoch, contentPublicKey } = list.body;
  for (const machine of await allMachines(context)) {
    if (machine.contentEpoch === contentEpoch) continue;
    const metadata = await machineMetadata(context, machine).catch(() => undefined);
    if (!metadata) continue;
    const ring = KeyRing.generate();
    const body = {
      metadata: await sealJson(ring, purposes.machineMetadata(machine.id), metadata),
      encryptionKey: await sealRing(ring, contentPublicKey, bindings.machine(machine.id), keys.signer),
      contentEpoch,
      expectedMetadataVersion: machine.metadataVersion,
    };
    // Another device may be faster.
    await client.call("PATCH", "/v1/machines/{id}", { path: { id: machine.id }, body }).catch(() => undefined);
  }
}
