// Removes devices: their list first, then the keys of what they could read.

import { Refused } from "../../errors.js";
import type { List, ListedDevice } from "../../protocol/lists/list.js";
import { sleep } from "../../retry.js";
import type { Context } from "../context.js";
import { takeBack } from "../live/access.js";
import { renewKeys } from "../machines/keys.js";
import { awaitConfirmed, type Unconfirmed } from "../machines/seen.js";
import { sessionPages } from "../sessions/find.js";
import type { Session } from "../sessions/known.js";
import { ringForTitle } from "../sessions/read.js";
import { due, isWithoutItsHost, rekey } from "../sessions/rekey.js";
import { titled } from "../sessions/titles.js";
import { setRemoval } from "../unfinished.js";
import { changeDevices, checkPrimary } from "./change.js";

/** Sessions that were used within this many days get new keys at once when a device is removed. */
const RECENT_DAYS = 7;
/** Sessions that get a new key at once when a device was removed. */
const MOST_AT_ONCE = 200;
/** Live sessions that are searched for rights that a removed device has given. */
const MOST_WITH_RIGHTS = 100;
/** The time until every service refuses a removed device, in milliseconds. */
const SETTLED = 12_000;
/** Sessions whose titles are judged before a removal, the newest first. */
const MOST_SEEN = 1_000;

/** What a removal has left open. */
export interface Removed {
  /** The machines that have not confirmed it: until they do, a removed device and the server can still command them. */
  unconfirmed: Unconfirmed[];
  /** How many live sessions were not searched for rights that a removed device has given. */
  unsearched: number;
}

/** Removes devices and their computers' machines. Nothing more is sealed to them, and recent sessions get new keys at once. */
export async function removeDevices(
  context: Context,
  keys: readonly string[],
  onProgress?: (done: number, of: number) => void,
): Promise<Removed> {
  const { client } = context;
  await checkPrimary(context);
  if (keys.includes(context.keys.publicKey)) throw new Refused("This is the device that you use. Sign out here instead.");
  // The removed device's last texts are read before it is removed: its signature does not count afterwards.
  const shared = await context.pins.shared().catch(() => ({ state: {} }));
  await seeTitles(context);
  await setRemoval(context.store, true);
  let machines: string[] = [];
  await changeDevices(context, (devices) => {
    // A machine is removed with its computer.
    const isGone = ({ key, by = key }: ListedDevice): boolean => keys.includes(key) || keys.includes(by);
    machines = devices.filter(isGone).flatMap(({ machineId }) => machineId ?? []);
    return devices.filter((device) => !isGone(device));
  });
  await Promise.allSettled(machines.map((id) => client.call("DELETE", "/v1/machines/{id}", { path: { id } })));
  // Sessions get their keys in any case.
  const [signed] = await Promise.allSettled([context.pins.signAgain(shared.state)]);
  const confirming = awaitConfirmed(context);
  await settle(context);
  const unsearched = await renewAll(context, onProgress);
  if (signed.status === "rejected") {
    throw new Refused("The device was removed, but what your devices share was not kept.", { cause: signed.reason });
  }
  return { unconfirmed: await confirming, unsearched };
}

/** Judges the titles of the own sessions by a list, before a device or a machine in it is removed or right after. A title that it has given
 * counts afterwards only where that was seen. One that fails is no reason to keep a device that is lost. */
export async function seeTitles(context: Context, by?: List): Promise<void> {
  let count = 0;
  const see = async (session: Session): Promise<unknown> => titled(context, session, await ringForTitle(context, session), by);
  try {
    for await (const sessions of sessionPages(context)) {
      await Promise.allSettled(sessions.map(see));
      if ((count += sessions.length) >= MOST_SEEN) return;
    }
  } catch {
    // The sessions that were used on this device have theirs already.
  }
}

/** Waits until every service refuses the devices that were removed, and finishes the removal. */
export async function afterRemoval(context: Context): Promise<void> {
  await settle(context);
  await finishRemoval(context);
}

async function settle(context: Context): Promise<void> {
  await setRemoval(context.store, true);
  await sleep(SETTLED);
}

/** Finishes an earlier removal. A notice reports what was left open. */
export async function finishRemoval(context: Context): Promise<void> {
  const sessions = await renewAll(context);
  if (sessions > 0) context.notices.give({ is: "rights_not_searched", sessions });
}

/** Gives the sessions that are in use new keys after a device was removed, and takes back what it has let people do. Every other session
 * gets its key before its next message. Resolves to the number of live sessions that were not searched for such rights. */
async function renewAll(context: Context, onProgress: (done: number, of: number) => void = () => undefined): Promise<number> {
  const own = await context.own(0);
  const [wanted, recent, old]: [Session[], Session[], Session[]] = [[], [], []];
  for await (const sessions of sessionPages(context)) {
    for (const session of sessions) {
      const isRecent = session.online || Date.now() - Date.parse(session.updatedAt) < RECENT_DAYS * 86_400_000;
      const isAtOnce = isRecent || isWithoutItsHost(own, session);
      if (isAtOnce && (await due(context, session)) !== undefined) wanted.push(session);
      if (session.hosted && !isWithoutItsHost(own, session)) (isRecent ? recent : old).push(session);
    }
  }
  // Sessions come the newest first. All others get their key before their next message.
  wanted.splice(MOST_AT_ONCE);
  for (const [at, session] of wanted.entries()) {
    await context.client.leaveRoom();
    // The others must get theirs, so a failure is passed over: that session gets its key before its next message. The server detects
    // another program that was faster.
    await rekey(context, session).catch(() => undefined);
    onProgress(at + 1, wanted.length);
  }
  const live = [...recent, ...old];
  let unsearched = Math.max(0, live.length - MOST_WITH_RIGHTS);
  for (const { id } of live.slice(0, MOST_WITH_RIGHTS)) {
    await context.client.leaveRoom();
    await takeBack(context, id).catch(() => unsearched++);
  }
  // One that fails is tried again with the next removal.
  await renewKeys(context).catch(() => undefined);
  await setRemoval(context.store, false);
  return unsearched;
}
