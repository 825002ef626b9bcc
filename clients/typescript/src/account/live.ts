// A live session as this device shows it: messages that were opened, checked and folded into a view, and commands that are signed for
// its machine.

import { newId } from "../client.js";
import { isProblem, Refused, SealError } from "../errors.js";
import { openContent, purposes, sealContent, type KeyRing } from "../seal/ring.js";
import { followSession, type FollowOptions, type SessionEvent } from "../streams.js";
import {
  MOST_ATTACHMENTS,
  readBody,
  writeCommand,
  type Answer,
  type Attachment,
  type Command,
  type Control,
} from "../transcript/body.js";
import { bodyDigest, openEnvelope, signBody } from "../transcript/envelope.js";
import { readFrame } from "../transcript/frame.js";
import { attachmentSize, type Card, type Taken } from "../transcript/item.js";
import { View, type Changed, type Incoming, type Keep } from "../transcript/view.js";
import type { Account } from "./account.js";
import { Authors } from "./authors.js";
import { shownOf, titled, type Metadata } from "./titles.js";
import { FRESH, readable, readSession, writable, type Session } from "./vault.js";
import type { components } from "../openapi.js";

type Sealed = components["schemas"]["Message"];

/** Messages that are loaded at once. */
const PAGE = 300;
/** Pages that are read to find a request that is open. */
const MOST_PAGES = 20;

/** A command that was sent. */
export interface Sent {
  /** Its id. The same id again, after a failure, is never a second command. */
  localId: string;
  seq: number;
}

export class LiveSession {
  readonly view: View;
  readonly #listeners = new Set<(changed: Changed) => void>();
  readonly #authors: Authors;
  /** The `seq` of the first message that was taken. */
  #first: number | undefined;
  #older: Promise<boolean> | undefined;
  #taking: Promise<unknown> = Promise.resolve();

  private constructor(
    readonly account: Account,
    public session: Session,
    private ring: KeyRing,
    keep?: Keep,
  ) {
    this.view = new View(keep);
    this.#authors = new Authors(account, session);
  }

  /** Opens a session and loads its newest messages. */
  static async open(account: Account, id: string, keep?: Keep): Promise<LiveSession> {
    const read = await readSession(account, id);
    if (!read.hosted) throw new Refused("No agent works in this session: people write to each other in it.");
    const [{ session, ring }] = await Promise.all([readable(account, read), account.people.list(read.ownerId)]);
    const live = new LiveSession(account, session, ring, keep);
    await live.#load();
    return live;
  }

  /** Title, directory and host, as far as each counts. */
  async metadata(): Promise<Metadata> {
    return shownOf(await titled(this.account, this.session, this.ring));
  }

  /** Calls back after each change. Returns how to stop that. */
  subscribe(listener: (changed: Changed) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Takes the messages before the first one. False: there are none. */
  loadOlder(): Promise<boolean> {
    this.#older ??= this.#loadOlder().finally(() => (this.#older = undefined));
    return this.#older;
  }

  /** Follows the session until the signal is aborted: everything that comes is folded into the view. Each change is given here and to
   * those who have subscribed. It can be called again later, and goes on where it was. */
  async *follow(options: FollowOptions = {}): AsyncGenerator<Changed, void, undefined> {
    const after = this.view.lastSeq ?? this.session.lastSeq;
    for await (const event of followSession(this.account.client, this.session.id, { ...options, after })) {
      yield await this.take(event);
    }
  }

  /** Takes an event that somebody else has read from the session's stream, as another tab. Events are taken one after the other. */
  take(event: SessionEvent): Promise<Changed> {
    const taken = this.#taking.then(() => this.#take(event));
    this.#taking = taken.catch(() => undefined);
    return taken;
  }

  async #take(event: SessionEvent): Promise<Changed> {
    const none: Changed = { items: [], state: false, plan: false, live: false };
    let changed = none;
    if (event.event === "message") {
      changed = this.view.message(await this.#opened(event.data));
    } else if (event.event === "live") {
      const opened = await openContent(this.ring, purposes.liveFrame(this.session.id), event.data.content).catch(
        () => undefined,
      );
      const frame = opened && readFrame(opened);
      if (frame) changed = this.view.frame(frame);
    } else {
      this.session = await readSession(this.account, this.session.id);
      // A title is signed for the key of now. A guest may not have been given it yet.
      if (this.session.keyEpoch > this.ring.epoch) await this.#newKey();
      changed = { ...none, state: true };
    }
    return this.#tell(changed);
  }

  /** Something for the agent to do: now, where it can be steered, or next. */
  prompt(text: string, options: { attachments?: Attachment[]; when?: "now" | "next"; localId?: string } = {}): Promise<Sent> {
    const { attachments = [], when = "next", localId } = options;
    const size = attachments.reduce((sum, one) => sum + attachmentSize(one), 0);
    if (size > MOST_ATTACHMENTS)
      throw new Refused("The attachments are too large. Together they may have 512 KiB. Make images smaller.");
    return this.#directory().then((where) => this.send({ type: "prompt", text, attachments, when, ...where }, localId));
  }

  /** Answers a request as it was shown. To a question without options or texts: the person does not answer. */
  answer(card: Card, answer: Pick<Answer, "optionId" | "answers" | "message"> = {}, localId?: string): Promise<Sent> {
    return this.send({ type: "answer", requestId: card.requestId, digest: card.digest, ...answer }, localId);
  }

  async control(control: Exclude<Control, { action: "newer" }>, localId?: string): Promise<Sent> {
    const isResumed = control.action === "resume" && control.value === undefined;
    const where = isResumed ? await this.#directory() : {};
    return this.send(
      { type: "control", ...control, ...(where.directory !== undefined && { value: where }) } as Command,
      localId,
    );
  }

  /** Signs and sends a command. What became of it is in the view, once the machine has answered. */
  async send(command: Command, localId: string = newId()): Promise<Sent> {
    const { client, keys, userId } = this.account;
    const id = this.session.id;
    // The machine fetches what it does not know, so a server that hides a removal from it is noticed.
    const owner = await this.account.people.list(this.session.ownerId, FRESH);
    const list = { version: owner.version, digest: owner.digest };
    const body = writeCommand(command, { localId, at: new Date(this.account.credential.now()).toISOString(), list });
    const signed = await signBody(id, userId, body, keys.signer);
    for (let tries = 0; tries < 3; tries++) {
      const { ring } = await writable(this.account, id);
      const message = { content: await sealContent(ring, purposes.message(id), signed), localId, keyEpoch: ring.epoch };
      try {
        const call = client.http.POST("/v3/sessions/{id}/messages", { params: { path: { id } }, body: message });
        const { seq } = await client.data(call);
        return { localId, seq };
      } catch (error) {
        if (!isProblem(error, "KEY_EPOCH_OLD")) throw error;
      }
    }
    throw new Refused("The session's key changes all the time, so it was not sent. Try again.");
  }

  /** What has become of a command of this device. */
  taken(localId: string): Taken | undefined {
    return this.view.taken(this.account.keys.publicKey, localId);
  }

  async #load(): Promise<void> {
    const messages = await this.#page({ limit: PAGE });
    for (const incoming of await this.#all(messages)) this.view.message(incoming);
    this.#first = messages[0]?.seq;
    // What is asked must be seen, however much was written since.
    for (let pages = 0; pages < MOST_PAGES; pages++) {
      const isMissing = (this.session.attention?.open ?? 0) > 0 && this.view.open.length === 0;
      if (!isMissing || !(await this.#loadOlder())) return;
    }
  }

  async #loadOlder(): Promise<boolean> {
    if (this.#first === undefined || this.#first <= 1) return false;
    const messages = await this.#page({ limit: PAGE, before: this.#first });
    this.#first = messages[0]?.seq ?? 1;
    this.#tell(this.view.older(await this.#all(messages)));
    return true;
  }

  async #page(query: { limit: number; before?: number }): Promise<Sealed[]> {
    const { client } = this.account;
    const params = { path: { id: this.session.id }, query };
    const { messages } = await client.data(client.http.GET("/v3/sessions/{id}/messages", { params }));
    return messages.sort((one, other) => one.seq - other.seq);
  }

  /** Opens messages together: checking a signature waits for other threads. */
  #all(messages: Sealed[]): Promise<Incoming[]> {
    return Promise.all(messages.map((message) => this.#opened(message)));
  }

  /** Opens a message and finds out who has signed it. */
  async #opened(message: Sealed): Promise<Incoming> {
    const { seq } = message;
    const unsigned = (why: string): Incoming => ({
      seq,
      author: { kind: "nobody", why },
      digest: "",
      message: { unreadable: why },
    });
    let opened;
    try {
      opened = await this.#unseal(message.content);
    } catch (error) {
      if (error instanceof SealError) return unsigned(error.message);
      throw error;
    }
    const envelope = await openEnvelope(this.session.id, opened);
    if (typeof envelope === "string") return unsigned(envelope);
    // Who sends is known to the server. It lets nobody name others, whose lists everybody would read.
    if (envelope.user !== message.senderId) return unsigned("it was sent by another user than the one who signed it");
    const said = readBody(envelope.body);
    if ("localId" in said && said.localId !== message.localId) return unsigned("it was signed under another id");
    const author = await this.#authors.of(envelope.user, envelope.key);
    const isAsked = "content" in said && (said.content.type === "permission" || said.content.type === "question");
    return { seq, author, digest: isAsked ? await bodyDigest(envelope.body) : "", message: said };
  }

  async #unseal(content: string): Promise<Uint8Array<ArrayBuffer>> {
    const purpose = purposes.message(this.session.id);
    try {
      return await openContent(this.ring, purpose, content);
    } catch (error) {
      if (!(error instanceof SealError && error.kind === "epoch")) throw error;
      // The key was changed in the meantime.
      const { session, ring } = await readable(this.account, await readSession(this.account, this.session.id));
      [this.session, this.ring] = [session, ring];
      return openContent(this.ring, purpose, content);
    }
  }

  async #newKey(): Promise<void> {
    try {
      const { session, ring } = await readable(this.account, this.session);
      [this.session, this.ring] = [session, ring];
    } catch (error) {
      if (!(error instanceof SealError)) throw error;
    }
  }

  /** Where the agent works, as the machine has said it and this device shows it: in a state, or in the metadata by which the session was
   * found. */
  async #directory(): Promise<{ directory?: string }> {
    const directory = this.view.state?.directory ?? (await titled(this.account, this.session, this.ring)).ofMachine?.path;
    return typeof directory === "string" ? { directory } : {};
  }

  #tell(changed: Changed): Changed {
    for (const listener of this.#listeners) listener(changed);
    return changed;
  }
}
