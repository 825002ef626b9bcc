// A live session as this device shows it: messages that were opened, checked and folded into a view, and commands that are signed for
// its machine.

import { newId } from "../../client.js";
import { Refused } from "../../errors.js";
import { MOST_ATTACHMENTS, type Answer, type Attachment, type Command, type Control } from "../../protocol/transcript/body.js";
import { attachmentSize, type Card, type Taken } from "../../protocol/transcript/item.js";
import { View, type Changed, type Incoming, type Keep } from "../../protocol/transcript/view.js";
import { followSession, type FollowOptions, type SessionEvent } from "../../streams.js";
import type { Context } from "../context.js";
import type { Session } from "../sessions/known.js";
import { readable, readSession } from "../sessions/read.js";
import { shownOf, titled, type Metadata } from "../sessions/titles.js";
import { sendCommand, type Sent } from "./sender.js";
import { Watched } from "./watch.js";
import type { components } from "../../openapi.js";

type Sealed = components["schemas"]["Message"];

/** Messages that are loaded at once. */
const PAGE = 300;
/** Pages that are read to find a request that is open. */
const MOST_PAGES = 20;

export class LiveSession {
  readonly view: View;
  readonly #listeners = new Set<(changed: Changed) => void>();
  /** The `seq` of the first message that was taken. */
  #first: number | undefined;
  #older: Promise<boolean> | undefined;
  #taking: Promise<unknown> = Promise.resolve();

  private constructor(
    private readonly context: Context,
    private readonly watched: Watched,
    keep?: Keep,
  ) {
    this.view = new View(keep);
  }

  /** As the server has shown it last. */
  get session(): Session {
    return this.watched.session;
  }

  /** Opens a session and loads its newest messages. */
  static async open(context: Context, id: string, keep?: Keep): Promise<LiveSession> {
    const read = await readSession(context, id);
    if (!read.hosted) throw new Refused("No agent works in this session: people write to each other in it.");
    const [{ session, ring }] = await Promise.all([readable(context, read), context.people.list(read.ownerId)]);
    const live = new LiveSession(context, new Watched(context, session, ring), keep);
    await live.#load();
    return live;
  }

  /** Title, directory and host, as far as each counts. */
  async metadata(): Promise<Metadata> {
    return shownOf(await titled(this.context, this.session, this.watched.ring));
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
    for await (const event of followSession(this.context.client, this.session.id, { ...options, after })) {
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
      changed = this.view.message(await this.watched.opened(event.data));
    } else if (event.event === "live") {
      const frame = await this.watched.frame(event.data.content);
      if (frame) changed = this.view.frame(frame);
    } else {
      await this.watched.changed();
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
  send(command: Command, localId: string = newId()): Promise<Sent> {
    return sendCommand(this.context, this.session, command, localId);
  }

  /** What has become of a command of this device. */
  taken(localId: string): Taken | undefined {
    return this.view.taken(this.context.keys.publicKey, localId);
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
    const { client } = this.context;
    const params = { path: { id: this.session.id }, query };
    const { messages } = await client.call("GET", "/v3/sessions/{id}/messages", params);
    return messages.sort((one, other) => one.seq - other.seq);
  }

  /** Opens messages together: checking a signature waits for other threads. */
  #all(messages: Sealed[]): Promise<Incoming[]> {
    return Promise.all(messages.map((message) => this.watched.opened(message)));
  }

  /** Where the agent works, as the machine has said it and this device shows it: in a state, or in the metadata by which the session was
   * found. */
  async #directory(): Promise<{ directory?: string }> {
    const directory =
      this.view.state?.directory ?? (await titled(this.context, this.session, this.watched.ring)).ofMachine?.path;
    return typeof directory === "string" ? { directory } : {};
  }

  #tell(changed: Changed): Changed {
    for (const listener of this.#listeners) listener(changed);
    return changed;
  }
}
