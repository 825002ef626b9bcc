// The newest signed lists of the own account, for a server that has lost them: it was restored from a backup. A primary device sends them
// again. A server that is not behind, but shows other lists, gets nothing.

import { isProblem, Refused } from "../errors.js";
import { opensContents, type DeviceList, type List, type SignedList } from "../protocol/lists/list.js";
import { ContentRing } from "../protocol/seal/content-ring.js";
import type { Store } from "../store/store.js";
import { knownList, newestList, OldList } from "./lists.js";
import type { ChangeDevices, OwnDevice } from "./keys.js";

/** Lists that are kept, the newest ones. */
export const MOST_KEPT = 64;
const BEHIND = "The server has an old list of your devices (restored?). Open a primary device.";

/** What vouches for the keys that a list adds, if this device has made it. */
type Vouching = Pick<ChangeDevices, "proofs" | "names" | "links">;

interface KeptList {
  signed: SignedList;
  version: number;
  prev: string | null;
  digest: string;
  vouching?: Vouching;
}

interface Kept {
  /** The oldest first. Each follows the one before it. */
  lists: KeptList[];
  /** The content ring of the last one, sealed to this device. */
  ring?: string;
}

const record = (user: string): string => `own lists ${user}`;

/** Keeps lists that were checked, the oldest first, and the ring of the last of them. `vouching` is for that one. */
export async function keepLists(
  store: Store,
  user: string,
  checked: readonly List[],
  ring: string | undefined,
  vouching?: Vouching,
): Promise<void> {
  const last = checked.at(-1);
  if (!last) return;
  await store.update<Kept>(record(user), (before) => {
    let kept: Kept = before ?? { lists: [] };
    for (const list of checked) kept = withList(kept, list, list === last ? vouching : undefined);
    // Another tab may have kept a newer list, with its ring.
    return ring !== undefined && kept.lists.at(-1)?.digest === last.digest ? { ...kept, ring } : kept;
  });
}

function withList(kept: Kept, list: List, vouching: Vouching | undefined): Kept {
  const { signed, version, digest, body } = list;
  const entry: KeptList = { signed, version, prev: body.prev, digest, ...(vouching && { vouching }) };
  if (kept.lists.some((one) => one.digest === digest)) {
    return vouching ? { ...kept, lists: kept.lists.map((one) => (one.digest === digest ? entry : one)) } : kept;
  }
  const last = kept.lists.at(-1);
  if (last && version <= last.version) return kept;
  // Where some in between were never read here, the chain begins anew.
  const before = last?.digest === body.prev ? kept.lists : [];
  return { lists: [...before, entry].slice(-MOST_KEPT) };
}

/** The lists that follow the one that the server shows. Undefined: not all of them are kept. */
function after(kept: readonly KeptList[], shown: List | undefined, newest: List): KeptList[] | undefined {
  const [version, digest] = [shown?.version ?? 0, shown?.digest ?? null];
  if (kept.at(-1)?.digest !== newest.digest) return undefined;
  const isOther = (one: KeptList): boolean =>
    (one.version === version && one.digest !== digest) || (one.version === version + 1 && one.prev !== digest);
  if (kept.some(isOther)) throw new OldList();
  const missing = kept.filter((one) => one.version > version);
  return missing[0]?.prev === digest ? missing : undefined;
}

/** Sends the server the lists that it has lost, if this is a primary device and has them. The server shows another list than the known
 * one: when it is not simply behind, nothing is sent, and it is not to be relied on. */
export async function sendAgain({ client, store, userId, keys }: OwnDevice): Promise<void> {
  const known = await knownList(store, userId);
  if (!known) throw new OldList();
  const { account } = known.body;
  const shown = await newestList(client, userId, { account });
  if (shown && shown.version >= known.version) throw new OldList();
  const { lists, ring }: Kept = (await store.get<Kept>(record(userId))) ?? { lists: [] };
  const missing = after(lists, shown, known);
  const isPrimary = known.device(keys.publicKey)?.role === "primary";
  if (!missing || ring === undefined || !isPrimary) throw new Refused(BEHIND);
  const contents = await ContentRing.open(ring, keys.box, keys.publicKey, known);
  const vouching = missing.map((one) => one.vouching ?? {});
  const names = vouching.flatMap((one) => Object.entries(one.names ?? {}).filter(([key]) => known.device(key)));
  const body: ChangeDevices = {
    lists: missing.map(({ signed }) => signed),
    sealed: await ringsOf(known.body, contents),
    names: Object.fromEntries(names),
    proofs: Object.assign({}, ...vouching.map(({ proofs }) => proofs)) as Record<string, string>,
    links: vouching.flatMap(({ links }) => links ?? []),
  };
  try {
    await client.call("POST", "/v1/devices", { body });
  } catch (error) {
    // Another primary device was faster. Then its lists are read.
    if (isProblem(error, "DEVICE_LIST_CONFLICT")) return;
    if (!isProblem(error, "INVALID_ARGUMENT")) throw error;
    throw new Refused(
      "The server has an old list of your devices (restored?), and does not take the newer ones from this device. Open the primary " +
        "device that has added a device last.",
      { cause: error },
    );
  }
}

/** The content ring, sealed to each device that may open contents. */
export async function ringsOf(body: DeviceList, contents: ContentRing): Promise<Record<string, string>> {
  const sealed: Record<string, string> = {};
  for (const device of body.devices.filter(({ role }) => opensContents(role))) {
    sealed[device.key] = await contents.sealTo(device, body.account);
  }
  return sealed;
}
