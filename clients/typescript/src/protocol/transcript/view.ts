// What a client shows of a session: folded from messages in `seq` order and from live frames. The rules are those of
// `crates/protocol`. No I/O happens here, and one message costs the same however many came before.

import {
  writerOf,
  type Content,
  type Message,
  type Plan,
  type Receipt,
  type Resolved,
  type State,
  type ToolCall,
  type Turn,
  type Unreadable,
} from "./body.js";
import { Live, type Frame, type Growing } from "./frame.js";
import {
  commandName,
  commandOf,
  shownSize,
  takenOf,
  type Author,
  type Card,
  type Item,
  type Note,
  type Shown,
  type Taken,
} from "./item.js";

/** How much is kept. Older items are dropped. */
export interface Keep {
  items: number;
  /** Characters, roughly. */
  size: number;
}

/** What a message or a frame has changed, so that a screen draws only that. */
export interface Changed {
  /** The ids of the items that are new or different. */
  items: number[];
  state: boolean;
  plan: boolean;
  live: boolean;
}

/** A message of the server, opened: where it stands, who signed it and what it says. */
export interface Incoming {
  /** The server's number. */
  seq: number;
  author: Author;
  /** SHA-256 of the body. Only needed for permissions and questions. */
  digest: string;
  message: Message | Unreadable;
}

/** The id of the first item. Older ones that are loaded later have lower ids. */
export const FIRST_ID = 2 ** 32;
/** The open requests that are kept: what `attention.open` counts to. */
const MOST_OPEN = 99;
/** The prompts that wait at once; a host takes fewer. */
const MOST_QUEUED = 1_000;
/** What was said about messages that are not shown is kept for when they are loaded: so much of each kind. */
const MOST_UNMATCHED = 1_000;

/** An item as it is kept. */
interface KeptItem extends Item {
  /** What it was before the next message of the machine has judged it. One before it, in an older part, may judge otherwise. */
  readonly was?: Item;
}

/** The session as a client shows it. */
export class View {
  #keep: Keep;
  #items: KeptItem[] = [];
  #firstId = FIRST_ID;
  #size = 0;
  #lastSeq: number | undefined;
  #lastN: number | undefined;
  /** The newest list of the owner that the machine has named. */
  #newestList = 0;
  /** The owner, and the version of their list by which the caller finds authors. Undefined: the caller reads no lists. */
  #checked: { owner: string; list: number } | undefined;
  /** The machine's first message, and the list by which messages before it are judged. 0: by none. */
  #first: { seq: number; n: number; list: number } | undefined;
  readonly #tools = new Map<string, number>();
  readonly #requests = new Map<string, number>();
  readonly #commands = new Map<string, number>();
  /** The prompts that wait for their turn, by their `localId`. */
  readonly #queued = new Map<string, number>();
  #open: Card[] = [];
  #resolved: Resolved[] = [];
  #receipts: Receipt[] = [];
  #state: State | undefined;
  #plan: Plan | undefined;
  #lacksKey = false;
  readonly #live = new Live();
  #version = 0;

  constructor(keep: Keep = { items: 2_000, size: 32 * 1_024 * 1_024 }) {
    this.#keep = { ...keep };
  }

  /** Rises with each change: what `useSyncExternalStore` compares. */
  get version(): number {
    return this.#version;
  }

  /** The items that are kept, oldest first. The list is the view's own: do not change it, and do not keep it. */
  get items(): readonly Item[] {
    return this.#items;
  }

  /** The item with this id, while it is kept. */
  item(id: number): Item | undefined {
    return this.#items[id - this.#firstId];
  }

  /** The open requests, oldest first. They are kept although their items may be dropped. */
  get open(): readonly Card[] {
    return this.#open;
  }

  get state(): State | undefined {
    return this.#state;
  }

  get plan(): Plan | undefined {
    return this.#plan;
  }

  /** What comes after the items is encrypted with a key that has not reached this device yet. */
  get lacksKey(): boolean {
    return this.#lacksKey;
  }

  /** Says whether messages after the items wait for their key. */
  waitForKey(lacksKey: boolean): Changed {
    const changed = { ...nothing(), live: this.#lacksKey !== lacksKey };
    this.#lacksKey = lacksKey;
    if (changed.live) this.#version++;
    return changed;
  }

  /** The version of the owner's list by which the caller finds authors, as it has said last. */
  get list(): number | undefined {
    return this.#checked?.list;
  }

  /** The newest list that the machine has named, if the caller lacks it. */
  get withheld(): number | undefined {
    return this.#checked && this.#newestList > this.#checked.list ? this.#newestList : undefined;
  }

  /** The keys of which it is not known whether the list that the machine had named still has them. */
  unconfirmed(): Set<string> {
    const keys = new Set<string>();
    for (const { author, unconfirmed } of this.#items)
      if (unconfirmed !== undefined && author.kind === "person") keys.add(author.key);
    return keys;
  }

  /** The caller finds authors by this version of the owner's list from now on. `removed`: those of the `unconfirmed` keys that this list
   * lacks, with the version that removed them. */
  checked(owner: string, list: number, removed: ReadonlyMap<string, number>): Changed {
    const wasWithheld = this.withheld;
    this.#checked = { owner, list };
    const changed = nothing();
    for (const [at, item] of this.#items.entries()) {
      const { author } = item;
      if (author.kind !== "person" || author.user !== owner || author.removedIn !== undefined) continue;
      const removedIn = removed.get(author.key);
      if (removedIn !== undefined) this.#items[at] = { ...item, author: { ...author, removedIn } };
    }
    const first = this.#first;
    this.#judgeEach(changed, ({ seq, unconfirmed }) => (first && seq >= first.seq ? unconfirmed : undefined), true);
    if (first) this.#judge(changed, first.list, false);
    changed.live = wasWithheld !== this.withheld;
    this.#version++;
    return changed;
  }

  /** The `seq` of the newest message. */
  get lastSeq(): number | undefined {
    return this.#lastSeq;
  }

  /** The texts that are being written, by their part. None outlives the message with the whole text, nor its turn. */
  growing(): [number, Growing][] {
    return this.#live.parts();
  }

  /** What has become of a command, while it is kept. */
  taken(key: string, localId: string): Taken | undefined {
    const shown = this.item(this.#commands.get(commandName(key, localId)) ?? -1)?.shown;
    return shown && "taken" in shown ? shown.taken : undefined;
  }

  /** Takes a live frame. */
  frame(frame: Frame): Changed {
    const live = this.#live.take(frame);
    if (live) this.#version++;
    return { ...nothing(), live };
  }

  /** Takes a message. One with a `seq` that was there already is ignored. */
  message({ seq, author, digest, message }: Incoming): Changed {
    const changed = nothing();
    if (this.#lastSeq !== undefined && seq <= this.#lastSeq) return changed;
    this.#lastSeq = seq;
    this.#version++;
    if (author.kind === "unknown") this.#note(changed, seq, author, { kind: "not_signed", why: author.why });
    else if ("unreadable" in message) this.#note(changed, seq, author, { kind: "unreadable", why: message.unreadable });
    else this.#signed(changed, seq, author, digest, message);
    return changed;
  }

  /** Puts the messages before the first one that is shown in front, in `seq` order. The view keeps more from now on. What a later
   * message has said about them is shown as it is there. */
  older(messages: Iterable<Incoming>): Changed {
    const changed = nothing();
    const before = new View({ items: Number.POSITIVE_INFINITY, size: Number.POSITIVE_INFINITY });
    before.#checked = this.#checked;
    for (const message of messages) before.message(message);
    this.#version++;
    // The nearest message of the machine before a command decides about it. Without one the nearest after it does.
    const { n, list: next } = this.#first ?? { n: 0, list: 0 };
    if (before.#first) {
      // Both do where the server keeps back what the machine has written between them.
      const isNext = before.#lastN === n - 1;
      this.#judge(changed, isNext ? before.#newestList : Math.max(before.#newestList, next), true);
    } else {
      before.#judge(nothing(), next, false);
    }
    this.#newestList = Math.max(this.#newestList, before.#newestList);
    this.#first = before.#first ?? this.#first;
    this.#keep.items += before.#items.length;
    this.#keep.size += before.#size;
    this.#size += before.#size;
    this.#firstId -= before.#items.length;
    const items = before.#items.map((item, at) => ({ ...item, id: this.#firstId + at }));
    for (const item of items.toReversed()) {
      this.#index(item, false);
      changed.items.push(item.id);
    }
    this.#items = items.concat(this.#items);
    for (const [name, id] of before.#queued) this.#queued.set(name, id - FIRST_ID + this.#firstId);
    this.#state ??= before.#state;
    this.#plan ??= before.#plan;
    const room = Math.max(0, MOST_OPEN - this.#open.length);
    this.#open = (room === 0 ? [] : before.#open.slice(-room)).concat(this.#open);
    const [resolved, receipts] = [before.#resolved.concat(this.#resolved), before.#receipts.concat(this.#receipts)];
    [this.#resolved, this.#receipts] = [[], []];
    for (const one of resolved) this.#resolve(changed, one);
    for (const one of receipts) this.#receipt(changed, one);
    for (const { shown } of this.#items.slice()) if (shown.type === "turn") this.#begun(changed, shown.turn);
    return changed;
  }

  #signed(changed: Changed, seq: number, author: Author, digest: string, message: Message): void {
    const writer = writerOf(message.content);
    if (author.kind === "host" ? writer === "client" : writer === "host") {
      const by = author.kind === "host" ? "a person's device" : "the session's machine";
      this.#note(changed, seq, author, { kind: "not_signed", why: `a ${message.content.type} that is not signed by ${by}` });
    } else if (author.kind === "host") {
      const { n } = message;
      if (!this.#count(changed, seq, n)) return;
      this.#named(changed, { seq, n, list: message.list.version });
      this.#host(changed, seq, digest, message);
    } else {
      this.#person(changed, seq, author, message);
    }
  }

  /** Compares the host's count with the one before. False: the message is not shown. */
  #count(changed: Changed, seq: number, n: number | undefined): n is number {
    const host: Author = { kind: "host" };
    if (n === undefined) {
      this.#note(changed, seq, host, { kind: "unreadable", why: "a message of the machine without its count" });
      return false;
    }
    const expected = this.#lastN === undefined ? n : this.#lastN + 1;
    if (n < expected) {
      this.#note(changed, seq, host, { kind: "repeated", n });
      return false;
    }
    if (n > expected) this.#note(changed, seq, host, { kind: "missing", from: expected, to: n - 1 });
    this.#lastN = n;
    return true;
  }

  #person(changed: Changed, seq: number, author: Author, { localId, at, content }: Message): void {
    if (author.kind === "person" && this.#commands.has(commandName(author.key, localId))) {
      return this.#note(changed, seq, author, { kind: "repeated_command", localId });
    }
    const shown = commanded(content);
    const removed = removedBy(author, shown, this.#newestList);
    if (removed) return this.#note(changed, seq, author, removed);
    this.#push(changed, { seq, author, localId, at, shown, ...this.#unconfirmed(author, this.#newestList) });
  }

  /** The list that was named, if the caller lacks it and it decides whether this device of the owner still counts. */
  #unconfirmed(author: Author, named: number): { unconfirmed?: number } {
    const { owner, list = Infinity } = this.#checked ?? {};
    const isOwners = author.kind === "person" && author.user === owner && author.removedIn === undefined;
    return isOwners && named > list ? { unconfirmed: named } : {};
  }

  /** The machine's message with this count names this list. */
  #named(changed: Changed, by: { seq: number; n: number; list: number }): void {
    if (!this.#first) {
      // The list that it named before is unknown, unless this is its very first message.
      this.#first = by.n === 1 ? { ...by, list: 0 } : by;
      this.#judge(changed, this.#first.list, false);
    }
    this.#newestList = Math.max(this.#newestList, by.list);
  }

  /** Judges the commands before the machine's first message by a list that it has named. `isBefore`: it has named it before them, so no
   * other message judges them again. */
  #judge(changed: Changed, version: number, isBefore: boolean): void {
    const end = this.#first?.seq ?? Infinity;
    this.#judgeEach(changed, ({ seq }) => (seq < end ? version : undefined), isBefore);
  }

  /** Judges each item by the list that is given for it. */
  #judgeEach(changed: Changed, list: (item: Item) => number | undefined, isBefore: boolean): void {
    for (const [at, item] of this.#items.entries()) {
      const version = list(item);
      if (version === undefined) continue;
      const { id, seq, author } = item;
      const { unconfirmed: _, ...known }: Item = item.was ? { ...item.was, id, author } : item;
      const isNote = known.shown.type === "note";
      const was: Item = { ...known, ...(!isNote && this.#unconfirmed(author, version)) };
      const note = removedBy(author, was.shown, version);
      if (!note && !item.was && was.unconfirmed === item.unconfirmed) continue;
      const shown: Shown | undefined = note && { type: "note", note };
      const next: KeptItem = shown ? { id, seq, author, localId: "", shown, ...(!isBefore && { was }) } : was;
      this.#size += keptSize(next) - keptSize(item);
      this.#items[at] = next;
      const command = commandOf(item);
      if (command !== undefined) this.#commands.delete(command);
      this.#index(next, false);
      changed.items.push(id);
    }
  }

  #host(changed: Changed, seq: number, digest: string, { localId, at, content }: Message): void {
    const shown = this.#hosted(changed, { seq, at }, digest, content);
    if (shown) this.#push(changed, { seq, author: { kind: "host" }, localId, at, shown });
  }

  /** What a message of the host shows. Undefined: it changes something that is there. */
  #hosted(changed: Changed, message: { seq: number; at: string }, digest: string, content: Content): Shown | undefined {
    switch (content.type) {
      case "turn": {
        // The prompt of a task has no message of its own.
        const { text, ...turn } = content;
        if (text !== undefined) {
          const prompt = { type: "prompt" as const, text, attachments: [], when: "next" as const };
          const shown = { type: "prompt" as const, prompt, taken: { is: "done" as const } };
          this.#push(changed, {
            seq: message.seq,
            author: { kind: "host" },
            localId: turn.promptId ?? "",
            at: message.at,
            shown,
          });
        }
        return this.#turn(changed, turn);
      }
      case "text":
      case "thought":
        this.#live.complete(content.turnId, content.part);
        changed.live = true;
        return { type: content.type, part: content };
      case "tool_call":
        return this.#tool(changed, content);
      case "permission":
      case "question":
        return { type: "card", card: this.#ask({ requestId: content.requestId, digest, asks: content }) };
      case "resolved":
        return void this.#resolve(changed, content);
      case "receipt":
        return void this.#receipt(changed, content);
      case "plan":
        this.#plan = content;
        changed.plan = true;
        return undefined;
      case "state":
        this.#state = after(this.#state, content);
        changed.state = true;
        return undefined;
      case "error":
        return { type: "error", failure: content };
      case "newer":
        return { type: "newer", name: content.name };
      default:
        return { type: "newer", name: content.type };
    }
  }

  #turn(changed: Changed, turn: Turn): Shown {
    if (turn.state === "started") {
      this.#live.begin(turn.turnId);
      this.#begun(changed, turn);
    } else {
      this.#live.finish();
    }
    changed.live = true;
    return { type: "turn", turn };
  }

  /** The prompt of this turn waits no more. */
  #begun(changed: Changed, { state, promptId = "" }: Turn): void {
    const id = state === "started" ? this.#queued.get(promptId) : undefined;
    if (id === undefined) return;
    this.#queued.delete(promptId);
    this.#amend(changed, id, (shown) => ("taken" in shown ? { ...shown, taken: { is: "done" } } : shown));
  }

  /** Amends the call with this id, or gives a new one. */
  #tool(changed: Changed, call: ToolCall): Shown | undefined {
    const isOver = call.status === "completed" || call.status === "failed" || call.status === "interrupted";
    if (isOver && call.part !== undefined) {
      this.#live.complete(call.turnId, call.part);
      changed.live = true;
    }
    const id = this.#tools.get(call.toolCallId);
    if (id === undefined) return { type: "tool", call };
    // A member that is absent has not changed. The turn is that of the first message.
    this.#amend(changed, id, (shown) =>
      shown.type === "tool" ? { type: "tool", call: { ...shown.call, ...call, turnId: shown.call.turnId } } : shown,
    );
    return undefined;
  }

  #ask(card: Card): Card {
    // An id is never used again; a second card with it would be answered as the first.
    const isKnown = this.#requests.has(card.requestId) || this.#open.some(({ requestId }) => requestId === card.requestId);
    if (!isKnown && this.#open.length < MOST_OPEN) this.#open = [...this.#open, card];
    return card;
  }

  #resolve(changed: Changed, resolved: Resolved): void {
    this.#open = this.#open.filter(({ requestId }) => requestId !== resolved.requestId);
    const id = this.#requests.get(resolved.requestId);
    if (id === undefined) return keep(this.#resolved, resolved);
    this.#amend(changed, id, (shown) =>
      shown.type === "card" && !shown.card.resolved ? { type: "card", card: { ...shown.card, resolved } } : shown,
    );
  }

  #receipt(changed: Changed, receipt: Receipt): void {
    const id = this.#commands.get(commandName(receipt.key, receipt.commandId));
    if (id === undefined) return keep(this.#receipts, receipt);
    if (receipt.outcome === "queued" && this.#queued.size < MOST_QUEUED) this.#queued.set(receipt.commandId, id);
    this.#amend(changed, id, (shown) => {
      const isOpen = "taken" in shown && (shown.taken.is === "not_yet" || shown.taken.is === "queued");
      return isOpen ? { ...shown, taken: takenOf(receipt) } : shown;
    });
  }

  #amend(changed: Changed, id: number, change: (shown: Shown) => Shown): void {
    const item = this.item(id);
    if (!item) return;
    const shown = change(item.shown);
    this.#size += shownSize(shown) - shownSize(item.shown);
    this.#items[id - this.#firstId] = { ...item, shown };
    changed.items.push(id);
    this.#shrink();
  }

  #note(changed: Changed, seq: number, author: Author, note: Note): void {
    this.#push(changed, { seq, author, localId: "", shown: { type: "note", note } });
  }

  #push(changed: Changed, made: Omit<Item, "id">): void {
    const item: Item = { ...made, id: this.#firstId + this.#items.length };
    this.#index(item, true);
    this.#size += shownSize(item.shown);
    changed.items.push(item.id);
    this.#items.push(item);
    this.#shrink();
  }

  /** @param isNewer The item comes after those that are there. */
  #index(item: Item, isNewer: boolean): void {
    const set = (map: Map<string, number>, name: string, isFirst: boolean): void => {
      if (isFirst || !map.has(name)) map.set(name, item.id);
    };
    if (item.shown.type === "tool") set(this.#tools, item.shown.call.toolCallId, isNewer);
    if (item.shown.type === "card") set(this.#requests, item.shown.card.requestId, false);
    const command = commandOf(item);
    if (command !== undefined) set(this.#commands, command, isNewer);
  }

  /** Drops the oldest items until the rest is within the bounds. */
  #shrink(): void {
    const most = Math.max(1, this.#keep.items);
    while (this.#items.length > most || (this.#size > this.#keep.size && this.#items.length > 1)) {
      const item = this.#items.shift();
      if (!item) return;
      this.#firstId++;
      this.#size -= keptSize(item);
      if (item.shown.type === "tool") this.#tools.delete(item.shown.call.toolCallId);
      if (item.shown.type === "card") this.#requests.delete(item.shown.card.requestId);
      const command = commandOf(item);
      if (command !== undefined) this.#commands.delete(command);
    }
  }
}

const nothing = (): Changed => ({ items: [], state: false, plan: false, live: false });

function keep<T>(all: T[], one: T): void {
  all.push(one);
  if (all.length > MOST_UNMATCHED) all.shift();
}

/** A state after an earlier one: a list of what can be chosen that is absent has not changed. */
function after(known: State | undefined, state: State): State {
  if (!known) return state;
  const or = <T>(now: T[], before: T[]): T[] => (now.length === 0 ? before : now);
  const [modes, models] = [or(state.modes, known.modes), or(state.models, known.models)];
  return { ...state, modes, models, commands: or(state.commands, known.commands) };
}

/** Its size, with what is kept of a command that may count after all. */
const keptSize = ({ was, shown }: KeptItem): number => shownSize((was ?? { shown }).shown);

/** The note for a command, if this list or an earlier one removed its device. */
function removedBy(author: Author, shown: Shown, version: number): Note | undefined {
  if (author.kind !== "person" || shown.type === "note" || (author.removedIn ?? Infinity) > version) return undefined;
  return { kind: "removed", user: author.user, text: shown.type === "prompt" ? shown.prompt.text : "" };
}

function commanded(content: Content): Shown {
  const taken: Taken = { is: "not_yet" };
  switch (content.type) {
    case "prompt":
      return { type: "prompt", prompt: content, taken };
    case "answer":
      return { type: "answer", answer: content, taken };
    case "control":
      return { type: "control", control: content, taken };
    case "newer":
      return { type: "newer", name: content.name };
    default:
      return { type: "newer", name: content.type };
  }
}
