// The request for a new device list.

import { encode } from "../bytes.js";
import type { Signer } from "../credential.js";
import type { ContentRing } from "../seal/content-ring.js";
import { opensContents, proofText, signList, type DeviceList } from "../seal/device-list.js";
import type { components } from "../openapi.js";

export type ChangeDevices = components["schemas"]["ChangeDevices"];

/** Signs a list, and seals the content ring to each device that may open contents. `added` are keys that this program has made. */
export async function changeOf(
  body: DeviceList,
  contents: ContentRing,
  signer: Signer,
  added: readonly Signer[] = [],
): Promise<ChangeDevices> {
  const sealed: Record<string, string> = {};
  for (const device of body.devices.filter(({ role }) => opensContents(role))) {
    sealed[device.key] = await contents.sealTo(device, body.account);
  }
  const proofs: Record<string, string> = {};
  for (const one of added) {
    const entry = body.devices.find(({ key }) => key === one.publicKey);
    if (entry) proofs[one.publicKey] = encode(await one.sign(proofText(body.account, entry)));
  }
  return { list: await signList(body, signer), sealed, ...(added.length > 0 && { proofs }) };
}
