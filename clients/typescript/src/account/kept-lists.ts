// The newest signed lists of the own account, for a server that has lost them: it was restored from a backup. A primary device sends them
// again. A server that is not behind, but shows other lists, gets nothing.

import { isProblem, Refused } from "../errors.js";
import { opensContents, type DeviceList, type List, type SignedList } from "../protocol/lists/list.js";
import { ContentRing } from "../protocol/seal/content-ring.js";
import type { Store } from "../store/store.js";
import { knownList, newestList, OldList } from "./lists.js";
import type { ChangeDevices, OwnDevice } from "./keys.js";
import { namesIn } from "./names.js";

/** Lists that are kept, the newest ones. */
export const MOST_KEPT = 64;
/** Lists that were sent and have no answer yet, the newest ones. */
const MOST_SENT = 8;
const BEHIND = "The server has an old list of your devices (restored?). Open a primary device.";

/** What vouches for the keys that a list adds, if this device has made it. */
type Vouching = Pick<ChangeDevices, "proofs" | "links">;

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
  /** Lists that this device has sent, and of which it does not know yet that the server has them: the page may be closed meanwhile. */
  sent?: KeptList[];
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
  const change = (before: Kept | undefined): Kept => {
    let kept: Kept = before ?? { lists: [] };
    for (const list of checked) kept = withList(kept, list, list === last ? vouching : undefined);
    // Another tab may have kept a newer list, with its ring.
    const isItsRing = ring !== undefined && ring !== kept.ring && kept.lists.at(-1)?.digest === last.digest;
    return isItsRing ? { ...kept, ring } : kept;
  };
  // Most often nothing is new, and a store writes each change to the disk.
  const before = await store.get<Kept>(record(user));
  if (before && change(before) === before) return;
  await store.update<Kept>(record(user), change);
}

/** Keeps what vouches for a list that this device has made, before the server is asked to take it. */
export async function keepSent(store: Store, user: string, list: List, { proofs, links }: Vouching): Promise<void> {
  if (!proofs && !links) return;
  const vouching = { ...(proofs && { proofs }), ...(links && { links }) };
  await store.update<Kept>(record(user), (kept) => {
    const others = kept?.sent?.filter(({ digest }) => digest !== list.digest) ?? [];
    return { ...kept, lists: kept?.lists ?? [], sent: [...others, entryOf(list, vouching)].slice(-MOST_SENT) };
  });
}

const entryOf = ({ signed, version, digest, body }: List, vouching: Vouching | undefined): KeptList => ({
  signed,
  version,
  prev: body.prev,
  digest,
  ...(vouching && { vouching }),
});

function withList(kept: Kept, list: List, given: Vouching | undefined): Kept {
  const { version, digest, body } = list;
  const vouching = given ?? kept.sent?.find((one) => one.digest === digest)?.vouching;
  const entry = entryOf(list, vouching);
  // No other list of this version or an older one can be the next.
  const sent = kept.sent?.filter((one) => one.version > version) ?? [];
  if (kept.lists.some((one) => one.digest === digest)) {
    return vouching ? { ...kept, lists: kept.lists.map((one) => (one.digest === digest ? entry : one)), sent } : kept;
  }
  const last = kept.lists.at(-1);
  if (last && version <= last.version) return kept;
  // If some in between were never read here, the chain starts again.
  const before = last?.digest === body.prev ? kept.lists : [];
  return { lists: [...before, entry].slice(-MOST_KEPT), sent };
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
export async function sendAgain(device: OwnDevice): Promise<void> {
  const { client, store, userId, keys } = device;
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
  const body: ChangeDevices = {
    lists: missing.map(({ signed }) => signed),
    sealed: await ringsOf(known.body, contents),
    // Those of the last list. Names are kept when a list is read or made.
    names: (await namesIn(device, known)).given,
    proofs: Object.assign({}, ...vouching.map(({ proofs }) => proofs)) as Record<string, string>,
    links: vouching.flatMap(({ links }) => links ?? []),
  };
  try {
    await client.call("POST", "/v1/devices", { body });
  } catch (error) {
    // Another primary device was faster. Then its lists are read.
    if (isProblem(error, "DEVICE_LIST_CONFLICT")) return;
    if (isProblem(error, "CONFLICT")) {
      throw new Refused(
        "The server has an old list of your devices (restored?), and does not take the newer ones: a device in them belongs to another " +
          "account there by now. Ask the operator of the server to delete that account, or to restore a newer backup: " +
          'docs/OPERATIONS.md, "Backup and restore", says how. Then load the page again.',
        { cause: error },
      );
    }
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
