/** Follows one live session: its stream while it is seen, and commands to its machine. */
import { type LiveSession, type Session } from "@ensemble/client/account";
import { Store } from "../base/store.ts";
import type { Answers, Card } from "../session/types.ts";
import { account, mine } from "./account.ts";
import { textOf } from "./failure.ts";
import type { FeedView, SessionFeed } from "./feed.ts";
import { keepTrying } from "./keep-trying.ts";
import { rowOf } from "./sessions.ts";

/** A tab that is hidden for so long gives its stream back: a browser has six connections to a server that speaks HTTP/1.1. */
const HIDDEN_MS = 10_000;

/** So many messages are read at first. A session that has no more is there as a whole. */
const LOADED = 300;

const NOTHING: FeedView = {
  row: undefined, state: undefined, items: [], open: [], plan: [], growing: [], turnId: undefined, hasOlder: false, isOpen: false,
  error: undefined, isHosted: true, may: { prompt: false, approve: false, own: false }, rejected: undefined,
};

export class LiveFeed implements SessionFeed {
  readonly view = new Store<FeedView>(NOTHING);
  #live: LiveSession | undefined;
  #following: AbortController | undefined;
  #watchers = 0;
  #hidden: ReturnType<typeof setTimeout> | undefined;
  #isDrawing = false;
  #phase: string | undefined;
  /** Answers of this browser whose receipt has not come: the request by the `localId`. */
  readonly #answers = new Map<string, string>();

  readonly id: string;

  constructor(id: string) {
    this.id = id;
  }

  /** Somebody looks at it. Returns how to stop. */
  watch(): () => void {
    this.#watchers += 1;
    if (this.#watchers === 1) {
      document.addEventListener("visibilitychange", this.#visibility);
      void this.#begin();
    }
    return () => {
      this.#watchers -= 1;
      if (this.#watchers > 0) return;
      document.removeEventListener("visibilitychange", this.#visibility);
      this.#pause();
    };
  }

  async prompt(text: string, when: "now" | "next", localId: string): Promise<void> {
    await this.#opened().prompt(text, { when, localId });
  }

  async answer(card: Card, { optionId, answers }: { optionId?: string; answers?: Answers | undefined }): Promise<void> {
    const localId = crypto.randomUUID();
    this.#answers.set(localId, card.requestId);
    await this.#opened().answer(card, { ...(optionId !== undefined && { optionId }), ...(answers && { answers }) }, localId);
  }

  async interrupt(): Promise<void> {
    await this.#opened().control({ action: "interrupt" });
  }

  async resume(): Promise<void> {
    await this.#opened().control({ action: "resume" });
  }

  async setMode(mode: string): Promise<void> {
    const seen = this.view.get().state?.mode;
    if (seen === undefined || seen === mode) return;
    await this.#opened().control({ action: "set_mode", value: { mode, seen } });
  }

  async setModel(model: string): Promise<void> {
    await this.#opened().control({ action: "set_model", value: { model } });
  }

  async loadOlder(): Promise<void> {
    const isMore = await this.#opened().loadOlder();
    this.view.update((before) => ({ ...before, hasOlder: isMore }));
  }

  #opened(): LiveSession {
    if (!this.#live) throw new Error("The session is not open yet.");
    return this.#live;
  }

  readonly #visibility = (): void => {
    clearTimeout(this.#hidden);
    if (document.hidden) this.#hidden = setTimeout(() => this.#pause(), HIDDEN_MS);
    else void this.#begin();
  };

  #pause(): void {
    clearTimeout(this.#hidden);
    this.#following?.abort();
    this.#following = undefined;
  }

  async #begin(): Promise<void> {
    if (this.#following || document.hidden) return;
    const following = new AbortController();
    this.#following = following;
    const failed = (error: unknown): void => this.view.update((before) => ({ ...before, error: textOf(error) }));
    await keepTrying(() => this.#follow(following.signal), failed, following.signal);
    if (this.#following === following) this.#following = undefined;
  }

  async #follow(signal: AbortSignal): Promise<void> {
    this.#live ??= await mine().sessions.open(this.id);
    await this.#described(this.#live.session);
    this.#phase = this.#live.view.state?.phase;
    this.view.update((before) => ({ ...before, isOpen: true, error: undefined, hasOlder: before.isOpen ? before.hasOlder : this.#mayHaveOlder() }));
    this.#draw();
    for await (const changed of this.#live.follow({ signal })) {
      if (changed.state) {
        await this.#described(this.#live.session);
        this.#keepStatus(this.#live).catch(() => undefined);
      }
      this.#drawSoon();
    }
  }

  /** The server lists a session as ended when its owner's client says so, after the machine has. */
  async #keepStatus({ view, session }: LiveSession): Promise<void> {
    const before = this.#phase;
    this.#phase = view.state?.phase;
    if (before === undefined || before === this.#phase || session.accessLevel !== "owner") return;
    const hasEnded = this.#phase === "ended";
    if (!hasEnded && before !== "ended") return;
    await mine().sessions.change(this.id, { status: hasEnded ? "ended" : "active" });
  }

  #mayHaveOlder(): boolean {
    const live = this.#live;
    const first = live?.view.items[0];
    return live !== undefined && live.session.lastSeq > LOADED && first !== undefined && first.seq > 1;
  }

  async #described(session: Session): Promise<void> {
    const row = await rowOf(session);
    this.view.update((before) => ({ ...before, row, isHosted: row.hosted }));
  }

  /** Draws at most once for each frame of the screen. */
  #drawSoon(): void {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    const draw = (): void => {
      this.#isDrawing = false;
      this.#draw();
    };
    if (document.hidden) setTimeout(draw, 100);
    else requestAnimationFrame(draw);
  }

  #draw(): void {
    const live = this.#live;
    if (!live) return;
    const { view } = live;
    const { state } = view;
    let turnId: string | undefined;
    for (let at = view.items.length - 1; at >= 0 && turnId === undefined; at--) {
      const shown = view.items[at]?.shown;
      if (shown?.type === "turn") turnId = shown.turn.state === "started" ? shown.turn.turnId : "";
    }
    this.view.update((before) => ({
      ...before, state, turnId: turnId || undefined, items: view.items.slice(), open: view.open, plan: view.plan?.entries ?? [],
      growing: view.growing().map(([part, { text, isThought }]) => ({ part, text, isThought })), may: this.#may(), rejected: this.#rejected() ?? before.rejected,
    }));
  }

  #rejected(): FeedView["rejected"] {
    let found: FeedView["rejected"];
    for (const [localId, requestId] of this.#answers) {
      const taken = this.#live?.taken(localId);
      if (taken === undefined || taken.is === "not_yet" || taken.is === "queued") continue;
      this.#answers.delete(localId);
      if (taken.is === "rejected") found = { requestId, text: taken.text ?? `The machine did not take it (${taken.code ?? "rejected"}).` };
    }
    return found;
  }

  #may(): FeedView["may"] {
    const { row } = this.view.get();
    const me = account.get();
    if (!row || me.state !== "ready") return { prompt: false, approve: false, own: false };
    if (row.ownerId === me.userId) return { prompt: true, approve: true, own: true };
    const grant = this.#live?.view.state?.access.find(({ user }) => user === me.userId)?.may;
    return { prompt: grant === "prompt" || grant === "approve", approve: grant === "approve", own: false };
  }
}
