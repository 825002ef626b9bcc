/** Follows one live session: its stream while it is seen, and commands to its machine. */
import { type LiveSession, type Session } from "@ensemble/client/account";
import type { Attachment } from "@ensemble/client/transcript";
import { Store } from "../base/store.ts";
import type { Answers, Card } from "../session/types.ts";
import { visible } from "../text/visible.ts";
import { account, mine } from "./account.ts";
import { failedOf } from "./failed.ts";
import { type FeedView, NOTHING, type SessionFeed } from "./feed.ts";
import { keepTrying } from "./keep-trying.ts";
import { keepView, keptView } from "./kept-view.ts";
import type { Looks } from "./looks.ts";
import { whileSeen } from "./seen.ts";
import { rowOf, sessions } from "./sessions.ts";

/** How long after a change the view is kept, in milliseconds. */
const KEPT_AFTER_MS = 3_000;

/** Messages that are read at first. A session that has no more is loaded as a whole. */
const LOADED = 300;

export class LiveFeed implements SessionFeed {
  readonly view = new Store<FeedView>(NOTHING);
  #live: LiveSession | undefined;
  #opening: Promise<LiveSession> | undefined;
  #watching: AbortController | undefined;
  #watchers = 0;
  #keeping: ReturnType<typeof setTimeout> | undefined;
  #isDrawing = false;
  #phase: string | undefined;
  /** Answers of this browser whose receipt has not come: the request by the `localId`. */
  readonly #answers = new Map<string, string>();

  readonly id: string;

  constructor(id: string) {
    this.id = id;
  }

  /** Follows the session while it is shown. Returns a function that stops it. */
  watch(): () => void {
    this.#watchers += 1;
    if (this.#watchers === 1) {
      this.#watching = new AbortController();
      // A person who comes back finds it as it was.
      document.addEventListener("visibilitychange", this.#keep, { signal: this.#watching.signal });
      // The session's own stream says nothing of its machine. The list is notified when that goes offline and comes back.
      this.#watching.signal.addEventListener("abort", sessions.subscribe(this.#listed));
      void this.#begin(this.#watching.signal);
    }
    return () => {
      this.#watchers -= 1;
      if (this.#watchers === 0) this.#watching?.abort();
    };
  }

  async prompt(text: string, when: "now" | "next", localId: string, attachments: Attachment[] = []): Promise<void> {
    const live = await this.#open();
    await live.prompt(text, { when, localId, attachments });
  }

  async answer(card: Card, { optionId, answers }: { optionId?: string; answers?: Answers | undefined }): Promise<void> {
    const localId = crypto.randomUUID();
    this.#answers.set(localId, card.requestId);
    await this.#opened().answer(card, { ...(optionId !== undefined && { optionId }), ...(answers && { answers }) }, localId);
  }

  async interrupt(): Promise<void> {
    await this.#opened().control({ action: "interrupt" });
  }

  async takeBack({ localId, key }: { localId: string; key: string }, id: string): Promise<void> {
    await this.#opened().control({ action: "take_back", value: { localId, key } }, id);
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
    this.#draw();
  }

  async looks(): Promise<Looks> {
    const { looksOf } = await import("./looks-of.ts");
    const { row } = this.view.get();
    if (!row) throw new Error("The session is not open yet.");
    return looksOf(row);
  }

  #opened(): LiveSession {
    if (!this.#live) throw new Error("The session is not open: there is no connection to the server yet.");
    return this.#live;
  }

  /** Opens it, once for all who wait. */
  #open(): Promise<LiveSession> {
    this.#opening ??= mine()
      .sessions.open(this.id)
      .then((live) => (this.#live = live))
      .catch((error: unknown) => {
        this.#opening = undefined;
        throw error;
      });
    return this.#opening;
  }

  async #begin(signal: AbortSignal): Promise<void> {
    void this.#showKept();
    const failed = (error: unknown): void => {
      this.view.update((before) => ({ ...before, ...failedOf(error, before) }));
      // Before anything is done in it again, the server is asked whether it exists again.
      if (this.view.get().isGone) this.#live = this.#opening = undefined;
    };
    await whileSeen((seen) => keepTrying(() => this.#follow(seen), failed, seen), signal);
  }

  async #showKept(): Promise<void> {
    if (this.#live) return;
    const kept = await keptView(this.id);
    if (kept && !this.#live) this.view.update((before) => ({ ...before, ...kept }));
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const isFirst = !this.#live;
    const live = await this.#open();
    if (signal.aborted) return;
    await this.#described(live.session);
    this.#phase = live.view.state?.phase;
    this.view.update((before) => ({
      ...before,
      isOpen: true,
      keptAt: undefined,
      error: undefined,
      isGone: undefined,
      hasOlder: isFirst ? this.#mayHaveOlder() : before.hasOlder,
    }));
    this.#draw();
    for await (const changed of live.follow({ signal })) {
      if (changed.state) {
        await this.#described(live.session);
        this.#keepStatus(live).catch(() => undefined);
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

  readonly #listed = (): void => {
    const listed = sessions.get().rows.find(({ id }) => id === this.id);
    const { row } = this.view.get();
    if (!row || !listed) return;
    const { online, cannotWrite, lastActiveAt } = listed;
    if (online !== row.online || cannotWrite !== row.cannotWrite)
      this.view.update((before) => ({ ...before, row: { ...row, online, cannotWrite, lastActiveAt } }));
  };

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
      ...before,
      state,
      turnId: turnId || undefined,
      items: view.items.slice(),
      lacksKey: view.lacksKey,
      withheld: view.withheld,
      open: view.open,
      plan: view.plan?.entries ?? [],
      growing: view.growing().map(([part, { text, isThought }]) => ({ part, text, isThought })),
      may: this.#may(),
      rejected: this.#rejected() ?? before.rejected,
    }));
    this.#keeping ??= setTimeout(this.#keep, KEPT_AFTER_MS);
  }

  readonly #keep = (): void => {
    if (this.#keeping === undefined) return;
    clearTimeout(this.#keeping);
    this.#keeping = undefined;
    void keepView(this.id, this.view.get());
  };

  #rejected(): FeedView["rejected"] {
    let found: FeedView["rejected"];
    for (const [localId, requestId] of this.#answers) {
      const taken = this.#live?.taken(localId);
      if (taken === undefined || taken.is === "not_yet" || taken.is === "queued") continue;
      this.#answers.delete(localId);
      if (taken.is === "rejected")
        found = { requestId, text: visible(taken.text ?? `The machine did not take it (${taken.code ?? "rejected"}).`) };
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
