// The sessions of an account and those that are shared with it: lists, titles, new ones, people and links.

import { uuidV7 } from "../bytes.js";
import { newId } from "../client.js";
import { Distrust, isProblem, Refused } from "../errors.js";
import { sleep } from "../retry.js";
import type { List } from "../seal/device-list.js";
import { LinkSecret } from "../seal/link.js";
import { KeyRing } from "../seal/ring.js";
import { sealMetadata } from "../seal/said.js";
import type { ShareLevel } from "../seal/share.js";
import { bindings, sealRing } from "../seal/signed-ring.js";
import type { May } from "../transcript/body.js";
import type { Account } from "./account.js";
import { Conversation } from "./conversation.js";
import { sealedFor, sharesOf, type Share } from "./grants.js";
import { LiveSession } from "./live.js";
import { beginTaking, tellAgain, tellMachine, type Told } from "./machine-access.js";
import { Starting, type Start } from "./start.js";
import { lasting, shownOf, titled, titledForWriting, writeTitle, type Metadata } from "./titles.js";
import { beginShareRemoval, endShareRemoval, setRemoval, unfinished } from "./unfinished.js";
import {
  FRESH,
  finish,
  isStale,
  mayItsHostRead,
  readable,
  readSession,
  rekey,
  rememberSession,
  titleRing,
  writable,
  type Session,
} from "./vault.js";
import type { components } from "../openapi.js";

export type { Metadata } from "./titles.js";

/** Which sessions a list holds. */
export interface SessionFilter {
  /** Also those that others share with this account. */
  shared?: boolean;
  /** Only those that want something from their people. */
  attention?: boolean;
}

/** Sessions that were used within so many days get new keys at once when a device is removed. */
const RECENT_DAYS = 7;
/** Sessions that get a new key at once when a device was removed. */
const MOST_AT_ONCE = 200;
/** Until every service refuses a device that was removed, in milliseconds. */
const SETTLED = 12_000;
/** Sessions whose titles are judged before a removal, the newest first. */
const MOST_SEEN = 1_000;
/** The rings that are kept to show titles. */
const MOST_RINGS = 2_000;

export class Sessions {
  readonly #rings = new Map<string, Promise<KeyRing>>();

  constructor(private readonly account: Account) {}

  /** The sessions, the most recently changed first, to the minute, page by page: sort what you show. */
  async *pages(filter: SessionFilter = {}): AsyncGenerator<Session[], void, undefined> {
    const { client } = this.account;
    const page = (cursor?: string) => {
      const query = {
        ...(filter.shared && { include: "shared" as const }),
        ...(filter.attention && { attention: "any" as const }),
        ...(cursor !== undefined && { cursor }),
      };
      return client.data(client.http.GET("/v1/sessions", { params: { query } }));
    };
    for await (const { sessions } of client.pages(page)) yield sessions;
  }

  /** A session, if it belongs to whom it belonged before. `id` may be its ref. */
  read(id: string): Promise<Session> {
    return readSession(this.account, id);
  }

  /** What counts of a session's metadata: the title that somebody has given who may, and the directory that its machine has signed. Empty
   * when nobody has who may, or when it is older than what this device has seen. */
  async metadata(session: Session): Promise<Metadata> {
    return shownOf(await titled(this.account, session, await this.#ring(session)));
  }

  /** A new session of people. */
  async create(metadata: Metadata, { machineId, tag }: { machineId?: string; tag?: string } = {}): Promise<Session> {
    const { client, keys, userId } = this.account;
    const { contents } = await this.account.own();
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
    const session = await client.data(client.http.POST("/v1/sessions", { body, params }));
    if (session.id === id) await rememberSession(this.account, session, ring);
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
    return Starting.prepare(this.account, start);
  }

  /** A live session, with its newest messages. */
  open(id: string): Promise<LiveSession> {
    return LiveSession.open(this.account, id);
  }

  /** A session of people, with its newest messages. */
  converse(id: string): Promise<Conversation> {
    return Conversation.open(this.account, id);
  }

  /** Changes the metadata. `edit` may be called again when another device was faster. */
  async describe(id: string, edit: (metadata: Metadata) => Metadata): Promise<Session> {
    const { session, ring } = await writable(this.account, id);
    const before = await titledForWriting(this.account, session, ring);
    // What does not count does not come to count by a new title.
    return writeTitle(this.account, session, ring, edit(lasting(before) ?? {}), before);
  }

  /** Archives, ends or reopens a session. */
  async change(id: string, body: Pick<components["schemas"]["UpdateSession"], "archived" | "status">): Promise<Session> {
    const { client } = this.account;
    return client.data(client.http.PATCH("/v1/sessions/{id}", { params: { path: { id } }, body }));
  }

  /** The person has seen that a session has finished or failed. */
  async seen(session: Session): Promise<void> {
    const { client } = this.account;
    if (session.attention?.kind !== "finished" && session.attention?.kind !== "failed") return;
    const body = { attention: { kind: "none" as const, open: 0 }, expectedVersion: session.attentionVersion ?? 0 };
    await client.data(client.http.PATCH("/v1/sessions/{id}", { params: { path: { id: session.id } }, body }));
  }

  /** Deletes a session for everybody. */
  async remove(id: string): Promise<void> {
    const { client } = this.account;
    await client.data(client.http.DELETE("/v1/sessions/{id}", { params: { path: { id } } }));
  }

  // ---- People ----

  /** With whom a session is shared. */
  shares(id: string): Promise<Share[]> {
    return sharesOf(this.account, id);
  }

  /** Shares a session with its newest key. In a live session an edit share lets a person prompt, and `approve` also answer. Show the
   * person's fingerprint (`people.fingerprint`), for people to compare. Resolves with what the machine was told, if it was. */
  async share(id: string, user: string, level: ShareLevel, { approve = false } = {}): Promise<Told> {
    const { client } = this.account;
    const before = await readSession(this.account, id);
    if (before.accessLevel === "owner" && level !== "admin") {
      const shares = await this.shares(before.id);
      // An admin who is to be less than that: a new key ends what the level has granted.
      const wasAdmin = shares.some(({ userId, accessLevel }) => userId === user && accessLevel === "admin");
      if (wasAdmin) await rekey(this.account, before, { without: [user] });
    }
    for (let tries = 0; tries < 3; tries++) {
      const { session, ring } = await writable(this.account, before.id);
      const sealed = await sealedFor(this.account, session, user, level, ring);
      const body = { userId: user, accessLevel: level, ...sealed };
      await client.data(client.http.POST("/v1/sessions/{id}/shares", { params: { path: { id: session.id } }, body }));
      if ((await readSession(this.account, session.id)).keyEpoch > ring.epoch) continue;
      return tellMachine(this.account, session, user, may(level, approve), true);
    }
    throw new Refused("Other programs of yours change the key of this session at the same time. Try again.");
  }

  /** Changes the level of a share. The level is signed with the key, and a new key ends what an earlier level has granted. */
  async changeShare(id: string, user: string, level: ShareLevel, { approve = false } = {}): Promise<Told> {
    const { client } = this.account;
    const before = await readSession(this.account, id);
    const isOwner = before.accessLevel === "owner";
    if (may(level, approve) === "none") await beginTaking(this.account, before, user);
    const { session, ring } = isOwner
      ? await rekey(this.account, before, { level: { user, level } })
      : await writable(this.account, before.id);
    const body = { accessLevel: level, ...(await sealedFor(this.account, session, user, level, ring)) };
    const params = { path: { id: session.id, userId: user } };
    await client.data(client.http.PATCH("/v1/sessions/{id}/shares/{userId}", { params, body }));
    return tellMachine(this.account, session, user, may(level, approve), false);
  }

  /** Ends a user's access, and gives the session a new key. With the own id it leaves a session of somebody else. */
  async unshare(id: string, user: string): Promise<Told> {
    const { client, store, userId } = this.account;
    const session = await readSession(this.account, id);
    const params = { path: { id: session.id, userId: user } };
    if (user === userId || session.accessLevel !== "owner") {
      await client.data(client.http.DELETE("/v1/sessions/{id}/shares/{userId}", { params }));
      return "nothing";
    }
    await beginTaking(this.account, session, user);
    await beginShareRemoval(store, session.id, user);
    await client.data(client.http.DELETE("/v1/sessions/{id}/shares/{userId}", { params }));
    // The machine first: what they may do ends with its receipt.
    const told = await tellMachine(this.account, session, user, "none", false);
    await rekey(this.account, await readSession(this.account, session.id), { without: [user] });
    await endShareRemoval(store, session.id);
    return told;
  }

  /** Makes or replaces the public link. Its address cannot be shown again: the server does not know its secret. */
  async createLink(
    id: string,
    { expiresAt, maxUses }: { expiresAt?: string; maxUses?: number } = {},
  ): Promise<{ address: string; link: components["schemas"]["Link"] }> {
    const { client } = this.account;
    const { session, ring } = await writable(this.account, id);
    const host =
      session.hosted && session.machineId ? (await this.account.own(FRESH)).list.machine(session.machineId) : undefined;
    const secret = LinkSecret.generate(host?.key);
    const body = {
      encryptedKey: await secret.seal(ring, session.id),
      ...(expiresAt !== undefined && { expiresAt }),
      ...(maxUses !== undefined && { maxUses }),
    };
    const params = { path: { id: session.id } };
    const link = await client.data(client.http.POST("/v1/sessions/{id}/public-share", { params, body }));
    return { address: secret.address(link.url), link };
  }

  /** How the public link stands. Undefined: there is none, or it has expired. */
  async link(id: string): Promise<components["schemas"]["LinkState"] | undefined> {
    const { client } = this.account;
    try {
      return await client.data(client.http.GET("/v1/sessions/{id}/public-share", { params: { path: { id } } }));
    } catch (error) {
      if (isProblem(error, "LINK_NOT_FOUND")) return undefined;
      throw error;
    }
  }

  async deleteLink(id: string): Promise<void> {
    const { client } = this.account;
    await client.data(client.http.DELETE("/v1/sessions/{id}/public-share", { params: { path: { id } } }));
  }

  // ---- What was not finished ----

  /** Tells machines again who may not command them any more, where that did not arrive or was refused. For when a machine comes back. */
  tellMachinesAgain(): Promise<void> {
    return this.account.store.lock("revoked", () => tellAgain(this.account));
  }

  /** Goes on with what a program that was ended has begun. Call it once after `Account.open`. */
  async finish(): Promise<void> {
    // The machines first: what somebody may do ends with their receipt. One that does not hear keeps no session from its new key.
    const [told] = await Promise.allSettled([this.tellMachinesAgain()]);
    await finish(this.account);
    if ((await unfinished(this.account.store)).isRemoval) await this.finishRemoval();
    if (told.status === "rejected") throw told.reason;
  }

  /** Judges the titles of the own sessions by a list, before a device or a machine in it is removed or right after. A title that it has given
   * counts afterwards only where that was seen. One that fails is no reason to keep a device that is lost. */
  async seeTitles(by?: List): Promise<void> {
    let count = 0;
    const see = async (session: Session): Promise<unknown> => titled(this.account, session, await this.#ring(session), by);
    try {
      for await (const sessions of this.pages()) {
        await Promise.allSettled(sessions.map(see));
        if ((count += sessions.length) >= MOST_SEEN) return;
      }
    } catch {
      // Sessions that were used here have theirs already.
    }
  }

  beginRemoval(): Promise<void> {
    return setRemoval(this.account.store, true);
  }

  /** Waits until every service refuses the devices that were removed, and gives sessions new keys. */
  async afterRemoval(onProgress?: (done: number, of: number) => void): Promise<void> {
    await this.beginRemoval();
    await sleep(SETTLED);
    await this.finishRemoval(onProgress);
  }

  /** Gives the sessions that are in use new keys after a device was removed. Every other one gets its key before its next message. */
  async finishRemoval(onProgress: (done: number, of: number) => void = () => undefined): Promise<void> {
    await this.account.own(0);
    const due: Session[] = [];
    for await (const sessions of this.pages()) {
      for (const session of sessions) {
        const isRecent = session.online || Date.now() - Date.parse(session.updatedAt) < RECENT_DAYS * 86_400_000;
        // A machine that was faster has given nobody else the key that it made.
        const isOld = session.rekeyNeeded || (await isStale(this.account, session));
        if ((isRecent && isOld) || (await mayItsHostRead(this.account, session))) due.push(session);
      }
    }
    // Sessions come the newest first. All others get their key before their next message.
    due.splice(MOST_AT_ONCE);
    for (const [at, { id }] of due.entries()) {
      // Others must get theirs. One that fails is tried again before its next message.
      await readSession(this.account, id)
        .then((session) => rekey(this.account, session))
        .catch(() => undefined);
      onProgress(at + 1, due.length);
    }
    // One that fails is tried again with the next removal.
    await this.account.machines.renewKeys().catch(() => undefined);
    await setRemoval(this.account.store, false);
  }

  /** The keys of a session for reading, checked. */
  async ring(session: Session): Promise<KeyRing> {
    return (await readable(this.account, session)).ring;
  }

  #ring(session: Session): Promise<KeyRing> {
    const name = session.encryptionKey ?? session.encryptedKey ?? session.id;
    let ring = this.#rings.get(name);
    if (!ring) {
      ring = titleRing(this.account, session).then((signed) => signed.ring);
      ring.catch(() => this.#rings.delete(name));
      this.#rings.set(name, ring);
      const oldest = this.#rings.size > MOST_RINGS ? this.#rings.keys().next().value : undefined;
      if (oldest !== undefined) this.#rings.delete(oldest);
    }
    return ring;
  }
}

/** What a share of a live session lets a person do with its agent. */
function may(level: ShareLevel, approve: boolean): May {
  if (approve) return "approve";
  return level === "edit" ? "prompt" : "none";
}
