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
import { readableSoFar, readSession } from "../sessions/read.js";
import { shownOf, titled, type Metadata } from "../sessions/titles.js";
import { sendCommand, type Sent } from "./sender.js";
import { inOrder, KeyHints, type Waiting } from "./waiting.js";
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
  #waiting: Waiting | undefined;
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

  /** Opens a session and loads its newest messages, and for a person those before them back to a request that is open. */
  static async open(
    context: Context,
    id: string,
    { keep, isForPerson = true }: { keep?: Keep; isForPerson?: boolean } = {},
  ): Promise<LiveSession> {
    const read = await readSession(context, id);
    if (!read.hosted) throw new Refused("No agent works in this session: people write to each other in it.");
    const [{ session, ring }] = await Promise.all([readableSoFar(context, read), context.people.list(read.ownerId)]);
    const live = new LiveSession(context, new Watched(context, session, ring), keep);
    await live.#load(isForPerson);
    return live;
  }

  /** Title, directory and host, if they count. */
  async metadata(): Promise<Metadata> {
    return shownOf(await titled(this.context, this.session, this.watched.ring));
  }

  /** Calls back after each change. Returns a function that stops it. */
  subscribe(listener: (changed: Changed) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Takes the messages before the first one. False: there are none. */
  loadOlder(): Promise<boolean> {
    this.#older ??= this.#loadOlder().finally(() => (this.#older = undefined));
    return this.#older;
  }

  /** Takes older messages, back to the page with the machine's newest state. False: it is not among those that are read at most. */
  async loadState(): Promise<boolean> {
    for (let pages = 0; !this.view.state; pages++) {
      if (pages === MOST_PAGES) return false;
      if (!(await this.loadOlder())) return true;
    }
    return true;
  }

  /** Follows the session until the signal is aborted: everything that comes is folded into the view. Each change is given here and to
   * those who have subscribed. It can be called again later, and continues where it was. */
  async *follow(options: FollowOptions = {}): AsyncGenerator<Changed, void, undefined> {
    const after = this.#waiting?.newest ?? this.view.lastSeq ?? this.session.lastSeq;
    const stop = new AbortController();
    const signal = AbortSignal.any([stop.signal, ...(options.signal ? [options.signal] : [])]);
    const events = followSession(this.context.client, this.session.id, { ...options, signal, after });
    let event: Promise<IteratorResult<SessionEvent, void>> | undefined;
    let keys: KeyHints | undefined;
    try {
      for (;;) {
        event ??= events.next();
        if (this.#isWaiting()) keys ??= new KeyHints(this.context.client, this.session.id);
        const next = await Promise.race([event, ...(keys ? [keys.next()] : [])]);
        if (next) {
          if (next.done) return;
          event = undefined;
          yield await this.take(next.value);
        } else {
          keys?.taken();
          yield await this.#next(() => this.#sessionChanged());
        }
        if (!this.#isWaiting()) keys = void keys?.end();
      }
    } finally {
      stop.abort();
      keys?.end();
      event?.catch(() => undefined);
      await events.return();
    }
  }

  /** Takes an event that another reader of the session's stream, such as a tab, has received. Events are taken one after the other. */
  take(event: SessionEvent): Promise<Changed> {
    return this.#next(() => this.#take(event));
  }

  #next(take: () => Promise<Changed>): Promise<Changed> {
    const taken = this.#taking.then(take);
    this.#taking = taken.catch(() => undefined);
    return taken;
  }

  async #take(event: SessionEvent): Promise<Changed> {
    if (event.event === "session") return this.#sessionChanged();
    if (event.event === "message") return this.#tell(await this.#message(event.data));
    const frame = await this.watched.frame(event.data.content);
    return this.#tell(frame ? this.view.frame(frame) : nothing());
  }

  async #message(message: Sealed): Promise<Changed> {
    if (this.#waiting) {
      // It is read again after those before it.
      this.#waiting.newest = Math.max(this.#waiting.newest, message.seq);
      return nothing();
    }
    return this.#opened([message], (opened, waiting) => this.#fold(opened, waiting));
  }

  /** Opens messages that follow each other and shows them. Their authors, and those of the view, are found by one list. */
  async #opened(
    messages: readonly Sealed[],
    show: (opened: Incoming[], waiting: Waiting | undefined) => Changed,
  ): Promise<Changed> {
    let changed = nothing();
    for (;;) {
      const { opened, waiting, list } = await inOrder(this.watched, messages);
      changed = merged(changed, await this.#judge());
      // Otherwise older messages were read meanwhile, and a newer list with them.
      if (this.view.list === list) return merged(changed, show(opened, waiting));
    }
  }

  /** Something is missing that may come: the key of messages, or a list of the owner that the machine has named. */
  #isWaiting(): boolean {
    return this.#waiting !== undefined || this.view.withheld !== undefined;
  }

  /** What the owner's devices have written is shown by the newest list that is known. */
  async #judge(): Promise<Changed> {
    const { authors, session } = this.watched;
    const version = await authors.version();
    if (this.view.list === version) return nothing();
    const removed = new Map<string, number>();
    for (const key of this.view.unconfirmed()) {
      const author = await authors.of(session.ownerId, key);
      if (author.kind === "person" && author.removedIn !== undefined) removed.set(key, author.removedIn);
    }
    return this.view.checked(session.ownerId, version, removed);
  }

  /** The session has another key, or something else of it has changed. */
  async #sessionChanged(): Promise<Changed> {
    await this.watched.changed();
    if (this.view.withheld !== undefined) await this.watched.authors.askAgain();
    let changed = merged({ ...nothing(), state: true }, await this.#judge());
    while (this.#waiting && this.#waiting.epoch <= this.watched.ring.epoch) {
      const { first, newest } = this.#waiting;
      const page = await this.#page({ limit: PAGE, after: first - 1 });
      // A server that gives others again would be asked without end.
      const messages = page.filter(({ seq }) => seq >= first);
      const last = messages.at(-1)?.seq ?? newest;
      const isMore = last < newest;
      const rest = isMore ? { first: last + 1, epoch: this.#waiting.epoch, newest } : undefined;
      const show = (opened: Incoming[], waiting: Waiting | undefined): Changed =>
        this.#fold(opened, waiting ? { ...waiting, newest: Math.max(waiting.newest, newest) } : rest);
      changed = merged(changed, await this.#opened(messages, show));
      changed.live = true;
    }
    return this.#tell(changed);
  }

  /** Shows messages, and says whether those after them wait. */
  #fold(opened: Incoming[], waiting: Waiting | undefined): Changed {
    const changed = opened.map((one) => this.view.message(one)).reduce(merged, nothing());
    this.#waiting = waiting;
    changed.live = this.view.waitForKey(waiting !== undefined).live || changed.live;
    return changed;
  }

  /** A prompt for the agent: now, if it can be steered, or next. */
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

  /** Signs and sends a command. Its outcome is in the view, once the machine has answered. */
  send(command: Command, localId: string = newId()): Promise<Sent> {
    return sendCommand(this.context, this.session, command, localId);
  }

  /** The state of a command of this device. */
  taken(localId: string): Taken | undefined {
    return this.view.taken(this.context.keys.publicKey, localId);
  }

  async #load(isForPerson: boolean): Promise<void> {
    const messages = await this.#page({ limit: PAGE });
    await this.#opened(messages, (opened, waiting) => this.#fold(opened, waiting));
    this.#first = messages[0]?.seq;
    // What is asked must be seen, however much was written since.
    for (let pages = 0; isForPerson && pages < MOST_PAGES; pages++) {
      const isMissing = (this.session.attention?.open ?? 0) > 0 && this.view.open.length === 0;
      if (!isMissing || !(await this.#loadOlder())) return;
    }
  }

  async #loadOlder(): Promise<boolean> {
    if (this.#first === undefined || this.#first <= 1) return false;
    const messages = await this.#page({ limit: PAGE, before: this.#first });
    const changed = await this.#opened(messages, (opened, waiting) => {
      this.#first = messages[0]?.seq ?? 1;
      // All that was written under a newer key waits with it.
      if (waiting) this.#waiting = { ...waiting, newest: this.#waiting?.newest ?? waiting.newest };
      this.view.waitForKey(this.#waiting !== undefined);
      return this.view.older(opened);
    });
    this.#tell(changed);
    return true;
  }

  async #page(query: { limit: number; before?: number; after?: number }): Promise<Sealed[]> {
    const { client } = this.context;
    const params = { path: { id: this.session.id }, query };
    const { messages } = await client.call("GET", "/v3/sessions/{id}/messages", params);
    return messages.sort((one, other) => one.seq - other.seq);
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

const nothing = (): Changed => ({ items: [], state: false, plan: false, live: false });

const merged = (one: Changed, other: Changed): Changed => ({
  items: [...one.items, ...other.items],
  state: one.state || other.state,
  plan: one.plan || other.plan,
  live: one.live || other.live,
});
