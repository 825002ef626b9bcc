// The sessions of an account and those that are shared with it: lists, titles, new ones, people and links.

import { newId } from "../../client.js";
import { Distrust, isNotFound, isProblem } from "../../errors.js";
import { uuidV7 } from "../../protocol/bytes.js";
import { LinkSecret } from "../../protocol/seal/link.js";
import { KeyRing } from "../../protocol/seal/ring.js";
import { sealMetadata } from "../../protocol/seal/said.js";
import type { ShareLevel } from "../../protocol/seal/share.js";
import { bindings, sealRing } from "../../protocol/seal/signed-ring.js";
import type { May } from "../../protocol/transcript/body.js";
import type { Context } from "../context.js";
import { finishRemoval } from "../devices/remove.js";
import { FRESH } from "../lists.js";
import { beginTaking, tellAgain, tellMachine, type MachineReceipt } from "../live/access.js";
import { Conversation } from "../live/conversation.js";
import { LiveSession } from "../live/index.js";
import { beginShareRemoval, forgetUnfinished, isUnfinished, unfinished } from "../unfinished.js";
import { sessionPages, type SessionFilter } from "./find.js";
import { notePerson, rememberSession, type Session } from "./known.js";
import { readable, readableSoFar, readSession, ringForTitle } from "./read.js";
import { finish, lacksKey, overtaken, rekey } from "./rekey.js";
import { sealedFor, sharesOf, type Share } from "./share.js";
import { Starting, type Start } from "./start.js";
import { lasting, shownOf, titled, titledForWriting, writeTitle, type Metadata } from "./titles.js";
import { writable } from "./write.js";
import type { components } from "../../openapi.js";

export class Sessions {
  constructor(private readonly context: Context) {}

  /** The sessions, the most recently changed first, to the minute, page by page: sort what you show. */
  pages(filter?: SessionFilter): AsyncGenerator<Session[], void, undefined> {
    return sessionPages(this.context, filter);
  }

  /** A session, if its owner is the same as before. `id` may be its ref. */
  read(id: string): Promise<Session> {
    return readSession(this.context, id);
  }

  /** What counts of a session's metadata: the title by a user who may give one, and the directory that its machine has signed. Empty
   * without either, or when it is older than what this device has seen. */
  async metadata(session: Session): Promise<Metadata> {
    return shownOf(await titled(this.context, session, await ringForTitle(this.context, session)));
  }

  /** A new session of people. */
  async create(metadata: Metadata, { machineId, tag }: { machineId?: string; tag?: string } = {}): Promise<Session> {
    const { client, keys, userId } = this.context;
    const { contents } = await this.context.own(FRESH);
    // Its key and its title are sealed for this id only.
    const [id, ring] = [uuidV7(), KeyRing.generate()];
    const body = {
      id,
      metadata: await sealMetadata(ring, id, 1, { body: JSON.stringify(metadata), user: userId }, keys.signer),
      encryptionKey: await sealRing(ring, await contents.publicKey(), bindings.session(id, userId), keys.signer),
      contentEpoch: contents.epoch,
      ...(machineId !== undefined && { machineId }),
      ...(tag !== undefined && { tag }),
    };
    // What is repeated must have the same key and the same body.
    const params = { header: { "Idempotency-Key": newId() } };
    const session = await client.call("POST", "/v1/sessions", { body, ...params });
    if (session.id === id) await rememberSession(this.context, session, ring);
    else if (tag === undefined)
      throw new Distrust("The server made another session than the one that was asked for. Do not trust it.");
    return session;
  }

  /** Begins a session with an agent on a machine of the account, and waits until it is there. */
  async start(start: Start, signal?: AbortSignal): Promise<Session> {
    return (await this.prepare(start)).begin(signal);
  }

  /** The same in two steps, so that the second one can be taken again. */
  prepare(start: Start): Promise<Starting> {
    return Starting.prepare(this.context, start);
  }

  /** A live session, with its newest messages. */
  open(id: string): Promise<LiveSession> {
    return LiveSession.open(this.context, id);
  }

  /** A session of people, with its newest messages. */
  converse(id: string): Promise<Conversation> {
    return Conversation.open(this.context, id);
  }

  /** Changes the metadata. `edit` may be called again when another device was faster. */
  async describe(id: string, edit: (metadata: Metadata) => Metadata): Promise<Session> {
    const { session, ring } = await writable(this.context, id);
    const before = await titledForWriting(this.context, session, ring);
    // A new title does not make other metadata count.
    return writeTitle(this.context, session, ring, edit(lasting(before) ?? {}), before);
  }

  /** Archives, ends or reopens a session. */
  async change(id: string, body: Pick<components["schemas"]["UpdateSession"], "archived" | "status">): Promise<Session> {
    const { client } = this.context;
    return client.call("PATCH", "/v1/sessions/{id}", { path: { id }, body });
  }

  /** The person has seen that a session has finished or failed. */
  async seen(session: Session): Promise<void> {
    const { client } = this.context;
    if (session.attention?.kind !== "finished" && session.attention?.kind !== "failed") return;
    const body = { attention: { kind: "none" as const, open: 0 }, expectedVersion: session.attentionVersion ?? 0 };
    await client.call("PATCH", "/v1/sessions/{id}", { path: { id: session.id }, body });
  }

  /** Deletes a session for all users. What is not finished of it ends, also if it was deleted elsewhere. */
  async remove(id: string): Promise<void> {
    const { client, store } = this.context;
    try {
      await client.call("DELETE", "/v1/sessions/{id}", { path: { id } });
    } catch (error) {
      if (!isNotFound(error) || !(await isUnfinished(store, id))) throw error;
    }
    await forgetUnfinished(store, id);
  }

  // ---- People ----

  /** The users with whom a session is shared. */
  shares(id: string): Promise<Share[]> {
    return sharesOf(this.context, id);
  }

  /** Shares a session with its newest key. In a live session an edit share lets a person prompt, and `approve` also answer. Show the
   * person's fingerprint (`people.fingerprint`), for people to compare. Resolves with the machine's receipt. */
  async share(id: string, user: string, level: ShareLevel, { approve = false } = {}): Promise<MachineReceipt> {
    const { client } = this.context;
    const before = await readSession(this.context, id);
    if (before.accessLevel === "owner" && level !== "admin") {
      const shares = await this.shares(before.id);
      // A lower level for an admin: a new key ends what the old level has granted.
      const wasAdmin = shares.some(({ userId, accessLevel }) => userId === user && accessLevel === "admin");
      if (wasAdmin) await rekey(this.context, before, { without: [user] });
    }
    for (let tries = 0; tries < 3; tries++) {
      const { session, ring } = await writable(this.context, before.id);
      const sealed = await sealedFor(this.context, session, user, level, ring);
      const body = { userId: user, accessLevel: level, ...sealed };
      await client.call("POST", "/v1/sessions/{id}/shares", { path: { id: session.id }, body });
      const now = await readable(this.context, await readSession(this.context, session.id));
      if (now.ring.epoch > ring.epoch || lacksKey(now.session, now.ring)) continue;
      await notePerson(this.context, session.id, ring, user);
      return tellMachine(this.context, session, user, may(level, approve), true);
    }
    throw overtaken();
  }

  /** Changes the level of a share. The level is signed with the key, and a new key ends what an earlier level has granted. */
  async changeShare(id: string, user: string, level: ShareLevel, { approve = false } = {}): Promise<MachineReceipt> {
    const { client } = this.context;
    const before = await readSession(this.context, id);
    const isOwner = before.accessLevel === "owner";
    if (may(level, approve) === "none") await beginTaking(this.context, before, user, false);
    const { session, ring } = isOwner
      ? await rekey(this.context, before, { level: { user, level } })
      : await writable(this.context, before.id);
    const body = { accessLevel: level, ...(await sealedFor(this.context, session, user, level, ring)) };
    const params = { path: { id: session.id, userId: user } };
    await client.call("PATCH", "/v1/sessions/{id}/shares/{userId}", { ...params, body });
    return tellMachine(this.context, session, user, may(level, approve), false);
  }

  /** Ends a user's access, and gives the session a new key. With its own id, the account leaves another user's session. */
  async unshare(id: string, user: string): Promise<MachineReceipt> {
    const { client, store, userId } = this.context;
    const session = await readSession(this.context, id);
    const params = { path: { id: session.id, userId: user } };
    if (user === userId || session.accessLevel !== "owner") {
      await client.call("DELETE", "/v1/sessions/{id}/shares/{userId}", params);
      return "nothing";
    }
    await beginTaking(this.context, session, user, true);
    await beginShareRemoval(store, session.id, user);
    await client.call("DELETE", "/v1/sessions/{id}/shares/{userId}", params);
    // The machine first: their rights end with its receipt.
    const receipt = await tellMachine(this.context, session, user, "none", false);
    await rekey(this.context, await readSession(this.context, session.id), { without: [user] });
    return receipt;
  }

  /** Makes or replaces the public link. Its address cannot be shown again: the server does not know its secret. */
  async createLink(
    id: string,
    { expiresAt, maxUses }: { expiresAt?: string; maxUses?: number } = {},
  ): Promise<{ address: string; link: components["schemas"]["Link"] }> {
    const { client } = this.context;
    const { session, ring } = await writable(this.context, id);
    const host =
      session.hosted && session.machineId ? (await this.context.own(FRESH)).list.machine(session.machineId) : undefined;
    const secret = LinkSecret.generate(host?.key);
    const body = {
      encryptedKey: await secret.seal(ring, session.id),
      ...(expiresAt !== undefined && { expiresAt }),
      ...(maxUses !== undefined && { maxUses }),
    };
    const params = { path: { id: session.id } };
    const link = await client.call("POST", "/v1/sessions/{id}/public-share", { ...params, body });
    return { address: secret.address(link.url), link };
  }

  /** How the public link stands. Undefined: there is none, or it has expired. */
  async link(id: string): Promise<components["schemas"]["LinkState"] | undefined> {
    const { client } = this.context;
    try {
      return await client.call("GET", "/v1/sessions/{id}/public-share", { path: { id } });
    } catch (error) {
      if (isProblem(error, "LINK_NOT_FOUND")) return undefined;
      throw error;
    }
  }

  async deleteLink(id: string): Promise<void> {
    const { client } = this.context;
    await client.call("DELETE", "/v1/sessions/{id}/public-share", { path: { id } });
  }

  // ---- What was not finished ----

  /** Sends again which users may not command a machine any more, if that did not arrive or was refused. Call it when one comes back. */
  tellMachinesAgain(): Promise<void> {
    return this.context.store.lock("revoked", () => tellAgain(this.context));
  }

  /** Completes what an earlier run of the program left unfinished. Call it once after `Account.open`. */
  async finish(): Promise<void> {
    // The machines first: a user's rights end with their receipt. One that does not answer keeps no session from its new key.
    const [receipts] = await Promise.allSettled([this.tellMachinesAgain()]);
    await finish(this.context);
    if ((await unfinished(this.context.store)).isRemoval) await finishRemoval(this.context);
    if (receipts.status === "rejected") throw receipts.reason;
  }

  /** The keys of a session for reading, checked. */
  async ring(session: Session): Promise<KeyRing> {
    return (await readableSoFar(this.context, session)).ring;
  }
}

/** What a share of a live session lets a person do with its agent. */
function may(level: ShareLevel, approve: boolean): May {
  if (approve) return "approve";
  return level === "edit" ? "prompt" : "none";
}
