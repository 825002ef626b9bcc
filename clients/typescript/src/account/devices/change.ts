// The next device list of the account.

import { isProblem, Refused } from "../../errors.js";
import type { Signer } from "../../protocol/ed25519.js";
import { MOST_DEVICES, type List, type ListedDevice } from "../../protocol/lists/list.js";
import type { Names } from "../../protocol/lists/name.js";
import type { ContentRing } from "../../protocol/seal/content-ring.js";
import type { Context } from "../context.js";
import { keepSent } from "../kept-lists.js";
import { changeOf, type Own } from "../own.js";
import type { ChangeDevices } from "../keys.js";
import { namesIn } from "../names.js";

/** The devices of the next list, from those of the newest one. A caller that adds or renames a device names it too. */
export type Edit = (devices: ListedDevice[], names: Names) => ListedDevice[] | Promise<ListedDevice[]>;

/** Puts the next list on top of the newest one, with a new content epoch when a device that opens contents is gone. True: one is
 * gone. Another device may be faster: then it is done again on top of its list. */
export async function changeDevices(
  context: Context,
  edit: Edit,
  added: readonly Signer[] = [],
  more: (list: List) => Promise<Partial<ChangeDevices>> = () => Promise.resolve({}),
  isLast = false,
): Promise<boolean> {
  const { client, keys, store, userId } = context;
  for (let tries = 0; ; tries++) {
    const own = await context.own(0);
    const body = own.list.successor();
    const names = await namesIn(context, own.list);
    body.devices = await edit(body.devices, names);
    if (body.devices.length > MOST_DEVICES) throw new Refused(`An account has at most ${MOST_DEVICES} devices. Remove some.`);
    const left = new Set(body.devices.map(({ key }) => key));
    const isOneGone = own.list.openers().some(({ key }) => !left.has(key));
    let contents: ContentRing = own.contents;
    if (isOneGone) {
      contents = contents.next();
      Object.assign(body, { contentEpoch: body.contentEpoch + 1, contentPublicKey: await contents.publicKey() });
    }
    const change = await changeOf(body, contents, keys.signer, names, added);
    const next: Own = { list: await own.list.next(change.list), contents };
    const whole = { ...change, ...(await more(next.list)) };
    const { links: _links, ...sent } = whole;
    // A linking is kept: it vouches for its device, should the server be restored from a backup.
    if (!isLast) await keepSent(store, userId, next.list, whole);
    try {
      await client.call("POST", "/v1/devices", { body: sent });
    } catch (error) {
      if (!isProblem(error, "DEVICE_LIST_CONFLICT") || tries >= 3) throw error;
      continue;
    }
    if (!isLast) await context.adopt(next, whole);
    return isOneGone;
  }
}

export async function checkPrimary(context: Context): Promise<void> {
  if (await context.isPrimary()) return;
  throw new Refused(
    "This is a linked device, and only a primary one can add, rename and remove devices. Do it on a primary device.",
  );
}
