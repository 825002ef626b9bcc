// Writing to a session: under a key that users and devices without access do not have.

import { isProblem, Refused } from "../../errors.js";
import type { Context } from "../context.js";
import { FRESH } from "../lists.js";
import { removedShares } from "../unfinished.js";
import { isOwner, lostKeys, noteUsed } from "./known.js";
import { newest, olderKey, readable, readSession, type Opened } from "./read.js";
import { due, lacksKey, rekey } from "./rekey.js";
import { checkGrant, guestsOf } from "./share.js";
import type { components } from "../../openapi.js";

/** The session with the keys for writing. It gets a new key first if a user who must not read what comes has the old one. Who lost access
 * here is known without the server. */
export async function writable(context: Context, id: string): Promise<Opened> {
  const opened = await writableDespiteRemoval(context, id);
  const { session } = opened;
  return (await removedShares(context.store, session.id)).length === 0 ? opened : rekey(context, session);
}

/** The same for what users who lost access may read: that they have lost it. Their session's machine is to get it at once, and under a key
 * that it has. */
async function writableDespiteRemoval(context: Context, id: string): Promise<Opened> {
  const [read] = await Promise.all([readSession(context, id), context.own(FRESH)]);
  // What is judged below is what is written under.
  const { known, ...now } = await newest(context, read);
  if ((await lostKeys(known, now.ring)) > 0) {
    if (isOwner(now.session)) return rekey(context, now.session);
    throw olderKey(now.session);
  }
  let opened: Opened = now;
  // It may be on its way: the owner's program gives it to people after it has made it.
  if (lacksKey(opened.session, opened.ring)) opened = await readable(context, await readSession(context, id));
  const { session, ring } = opened;
  if (isOwner(session)) {
    if ((await due(context, session)) !== undefined) return rekey(context, session);
    const { people, renewed } = await guestsOf(context, session, ring);
    if (renewed.length > 0) return rekey(context, session, { renewed });
    // Another program here has a newer key.
    if (!(await noteUsed(context, session.id, ring, people))) return rekey(context, session);
  } else {
    await checkGrant(context, session, "write");
  }
  if (lacksKey(session, ring)) {
    throw new Refused(
      "The key of this session was changed, and you have not been given the new one yet. Ask its owner to open the session.",
    );
  }
  return opened;
}

/** Sends a message under the newest key. `seal` is called again when the key was changed meanwhile. Sent twice with the same `localId` it is
 * one message. */
export async function sendMessage(
  context: Context,
  id: string,
  localId: string,
  seal: (opened: Opened) => Promise<string>,
  { despiteRemoval = false } = {},
): Promise<components["schemas"]["Message"]> {
  const { client } = context;
  for (let tries = 0; tries < 3; tries++) {
    const opened = await (despiteRemoval ? writableDespiteRemoval : writable)(context, id);
    const body = { content: await seal(opened), localId, keyEpoch: opened.ring.epoch };
    try {
      return await client.call("POST", "/v3/sessions/{id}/messages", { path: { id }, body });
    } catch (error) {
      if (!isProblem(error, "KEY_EPOCH_OLD")) throw error;
    }
  }
  throw new Refused("The session's key changes all the time, so it was not sent. Try again.");
}
