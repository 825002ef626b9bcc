/**
 * What the voice may ask this browser to do (docs/VOICE.md, "The person's tools"). The voice reads text of others, so none of it allows
 * anything: it reads, denies, brings a card up, and sends what the person can still take back.
 */
import type { FeedView, SessionFeed } from "../data/feed.ts";
import type { Card, PermissionOption } from "../session/types.ts";
import { inBytes, read } from "./reading.ts";

export const METHODS = ["session.send", "session.read", "permission.deny", "permission.show"] as const;
export type Method = (typeof METHODS)[number];

/** The bytes that RPC carries each way. */
export const MOST_BYTES = 15_360;
const MOST_TEXT = 8_000;
const MOST_MESSAGES = 20;
const MOST_ID = 128;
/** Calls that are taken in a minute. */
export const MOST_CALLS = 10;
const MINUTE_MS = 60_000;
/** How long a message is shown before it is sent, in milliseconds. */
export const HELD_MS = 3_000;
/** How long a command may take: the voice waits 20 s for all of it. */
const WITHIN_MS = 12_000;

/** Why a call is not done: a code of the contract. */
export class Refusal extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** The caller, as the room names it. */
export interface Caller {
  identity: string;
  isAgent: boolean;
}

/** One call, for the list on the screen. */
export interface Call {
  /** Those of this browser count from 1 upwards, those of the server from -1 downwards. */
  id: number;
  /** One of ours, or what the voice reads on the server without this browser. */
  method: string;
  /** What it was about: a message, the title of a request. Text of others. */
  about: string;
  outcome: string;
}

/** A message that is shown before it is sent. */
export interface Held {
  text: string;
  undo: () => void;
}

export interface ToolsOptions {
  feed: SessionFeed;
  /** The agent that the start's answer names. */
  agentIdentity: string;
  /** Whether the person has agreed in this conversation. */
  hasAgreed: () => boolean;
  /** Brings the card up. */
  show: (requestId: string) => void;
  /** Shows the message, or that there is none. */
  hold: (held: Held | undefined) => void;
  /** A call has come, or is over: the same id again. */
  called: (call: Call) => void;
  now?: () => number;
  heldMs?: number;
  /** Where a message is shown; the document, unless a test says otherwise. */
  page?: Page;
}

/** Whether a person can see it. */
export type Page = Pick<Document, "hidden" | "addEventListener" | "removeEventListener">;

type Body = Record<string, unknown>;

export class PersonTools {
  readonly #options: ToolsOptions;
  readonly #now: () => number;
  /** When calls came, within the last minute. */
  #times: number[] = [];
  #count = 0;
  #isOver = false;
  #held: { undo: () => void } | undefined;
  /** Requests that were denied here and are still open, because the machine has not confirmed the denial. */
  readonly #denied = new Set<string>();
  /** The last refusal, while nothing else was reported since. */
  #refused: { id: number; what: string; times: number } | undefined;

  constructor(options: ToolsOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => Date.now());
  }

  /** Answers one call. Fails with a {@link Refusal}. */
  async call(method: Method, caller: Caller, payload: string): Promise<string> {
    if (this.#isOver) throw new Refusal(403, "The conversation is over.");
    if (!caller.isAgent || caller.identity !== this.#options.agentIdentity)
      throw new Refusal(403, "Only the agent of this conversation may call.");
    if (!this.#options.hasAgreed()) throw new Refusal(403, "The person has not agreed.");
    this.#count += 1;
    const call: Call = { id: this.#count, method, about: "", outcome: "under way" };
    let isReported = false;
    const tell = (about: string, outcome: string) => {
      isReported = true;
      this.#refused = undefined;
      call.about = about;
      this.#options.called({ ...call, outcome });
    };
    try {
      this.#limit();
      const answer = JSON.stringify(await this.#do(method, payload, tell));
      if (inBytes(answer) > MOST_BYTES) throw new Refusal(413, "The answer is too large.");
      return answer;
    } catch (error) {
      const refusal = error instanceof Refusal ? error : new Refusal(502, "It could not be done.");
      if (isReported) tell(call.about, `not done: ${refusal.message}`);
      else this.#tellRefused(call, refusal);
      throw refusal;
    }
  }

  /** The conversation is over: nothing that is still shown is sent, and nothing more is taken. */
  end(): void {
    this.#isOver = true;
    this.#held?.undo();
  }

  /** The same refusal again is the same line with a count, so that refused calls push nothing that was done out of the list. */
  #tellRefused(call: Call, { code, message }: Refusal): void {
    const what = code === 429 ? message : `${call.method} ${message}`;
    const before = this.#refused?.what === what ? this.#refused : { id: call.id, what, times: 0 };
    this.#refused = { ...before, times: before.times + 1 };
    const { id, times } = this.#refused;
    this.#options.called({ ...call, id, outcome: `not done: ${message}${times > 1 ? ` (${times} times)` : ""}` });
  }

  #limit(): void {
    const now = this.#now();
    this.#times = this.#times.filter((time) => time > now - MINUTE_MS);
    // A refused call does not extend the minute.
    if (this.#times.length >= MOST_CALLS) throw new Refusal(429, `More than ${MOST_CALLS} calls in a minute.`);
    this.#times.push(now);
  }

  async #do(method: Method, payload: string, tell: (about: string, outcome: string) => void): Promise<Body> {
    const view = this.#options.feed.view.get();
    switch (method) {
      case "session.read": {
        const { last = 5 } = this.#body(payload, ["last"]);
        if (!Number.isInteger(last) || (last as number) < 1 || (last as number) > MOST_MESSAGES)
          throw new Refusal(400, "`last` is 1 to 20.");
        if (!view.isOpen) throw new Refusal(502, "The session is not open yet.");
        const answer = read(this.#options.feed.id, view, last as number);
        tell(`${answer.messages.length} messages`, "read");
        return { ...answer };
      }
      case "session.send": {
        const { text } = this.#body(payload, ["text"]);
        if (typeof text !== "string" || text.trim() === "") throw new Refusal(400, "`text` is missing.");
        if (text.length > MOST_TEXT) throw new Refusal(413, "`text` is too long.");
        const outcome = await this.#send(view, text, () => tell(text, "shown"));
        tell(text, outcome === "sent" ? "sent" : "taken back");
        return { outcome };
      }
      case "permission.deny": {
        const { requestId } = this.#body(payload, ["requestId"]);
        const card = cardOf(view, idOf(requestId), ["permission"]);
        const option = refusalOf(card);
        if (!view.may.approve) throw new Refusal(403, "This person may not answer requests.");
        if (!option) throw new Refusal(409, "This request cannot be denied.");
        for (const id of this.#denied) if (!view.open.some((one) => one.requestId === id)) this.#denied.delete(id);
        if (this.#denied.has(card.requestId)) throw new Refusal(404, "The request was already denied.");
        tell(titleOf(card), "being denied");
        this.#denied.add(card.requestId);
        await within(this.#options.feed.answer(card, { optionId: option.optionId })).catch((error: unknown) => {
          this.#denied.delete(card.requestId);
          throw error;
        });
        tell(titleOf(card), "denied");
        return { outcome: "denied" };
      }
      case "permission.show": {
        const { requestId } = this.#body(payload, ["requestId"]);
        const card = requestId === undefined ? view.open[0] : cardOf(view, idOf(requestId), ["permission", "question"]);
        if (!card) throw new Refusal(404, "Nothing is asked.");
        this.#options.show(card.requestId);
        tell(titleOf(card), "brought up");
        return { outcome: "shown", requestId: card.requestId, title: titleOf(card) };
      }
      default:
        throw new Refusal(400, "There is no such method.");
    }
  }

  /** The request, when it has the members of its method only and names the session that is open. */
  #body(payload: string, members: readonly string[]): Body {
    if (inBytes(payload) > MOST_BYTES) throw new Refusal(413, "The request is too large.");
    let body: unknown;
    try {
      body = JSON.parse(payload);
    } catch {
      throw new Refusal(400, "The request is not JSON.");
    }
    if (typeof body !== "object" || body === null || Array.isArray(body)) throw new Refusal(400, "The request is no object.");
    const { sessionId, ...rest } = body as Body;
    if (typeof sessionId !== "string") throw new Refusal(400, "`sessionId` is missing.");
    for (const name of Object.keys(rest))
      if (!members.includes(name)) throw new Refusal(400, `\`${name.slice(0, 40)}\` is not known.`);
    if (sessionId !== this.#options.feed.id) throw new Refusal(409, "Another session is open.");
    return rest;
  }

  /** Shows the text for a while, then sends it once. */
  async #send(view: FeedView, text: string, shown: () => void): Promise<"sent" | "undone"> {
    if (!view.may.prompt) throw new Refusal(403, "This person may not write in this session.");
    if (this.#held) throw new Refusal(409, "Another message is being shown.");
    const page = this.#options.page ?? document;
    if (page.hidden) throw new Refusal(409, "The page is hidden, so the message could not be taken back.");
    let hides = () => {};
    const isKept = await new Promise<boolean>((decided) => {
      const timer = setTimeout(() => decided(true), this.#options.heldMs ?? HELD_MS);
      const undo = () => {
        clearTimeout(timer);
        decided(false);
      };
      // What is not seen for all of its time is not sent.
      hides = () => page.hidden && undo();
      page.addEventListener("visibilitychange", hides);
      this.#held = { undo };
      this.#options.hold({ text, undo });
      shown();
    }).finally(() => {
      page.removeEventListener("visibilitychange", hides);
      this.#held = undefined;
      this.#options.hold(undefined);
    });
    if (!isKept || this.#isOver) return "undone";
    await within(this.#options.feed.prompt(text, "next", crypto.randomUUID()));
    return "sent";
  }
}

async function within(done: Promise<void>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, fail) => {
    timer = setTimeout(() => fail(new Refusal(502, "The server has not answered. It may have been done.")), WITHIN_MS);
  });
  try {
    await Promise.race([done, late]);
  } finally {
    clearTimeout(timer);
  }
}

function idOf(requestId: unknown): string {
  if (typeof requestId !== "string" || requestId === "" || requestId.length > MOST_ID)
    throw new Refusal(400, "`requestId` is missing.");
  return requestId;
}

function cardOf(view: FeedView, requestId: string, kinds: readonly Card["asks"]["type"][]): Card {
  const card = view.open.find((one) => one.requestId === requestId && kinds.includes(one.asks.type));
  if (!card) throw new Refusal(404, "There is no such open request.");
  return card;
}

/** The option that refuses this once, before one that refuses for longer. */
function refusalOf({ asks }: Card): PermissionOption | undefined {
  if (asks.type !== "permission") return undefined;
  return asks.options.find(({ kind }) => kind === "reject_once") ?? asks.options.find(({ kind }) => kind.startsWith("reject"));
}

export function titleOf({ asks }: Card): string {
  return (asks.type === "permission" ? asks.title : (asks.questions[0]?.text ?? "A question")).slice(0, 300);
}
