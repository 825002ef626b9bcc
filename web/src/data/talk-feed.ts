/** A session between people, without an agent: texts that come and texts that are sent. */
import { Refused } from "@ensemble/client";
import { Conversation, type Said } from "@ensemble/client/account";
import { Store } from "../base/store.ts";
import { account, mine } from "./account.ts";
import { failedOf } from "./failed.ts";
import { type FeedView, NOTHING, type SessionFeed } from "./feed.ts";
import { keepTrying } from "./keep-trying.ts";
import { keepView, keptView } from "./kept-view.ts";
import { itemOf } from "./said.ts";
import { whileSeen } from "./seen.ts";
import { rowOf } from "./sessions.ts";

const PAGE = 200;

export class TalkFeed implements SessionFeed {
  readonly id: string;
  readonly view = new Store<FeedView>({ ...NOTHING, isHosted: false });
  #opening: Promise<Conversation> | undefined;
  #said: Said[] = [];
  #watching: AbortController | undefined;

  constructor(id: string) {
    this.id = id;
  }

  watch(): () => void {
    const stop = new AbortController();
    this.#watching = stop;
    void keptView(this.id).then((kept) => {
      if (kept && !this.view.get().isOpen) this.view.update((before) => ({ ...before, ...kept }));
    });
    const failed = (error: unknown): void => {
      this.view.update((before) => ({ ...before, ...failedOf(error, before) }));
      if (this.view.get().isGone) this.#opening = undefined;
    };
    void whileSeen((seen) => keepTrying(() => this.#follow(seen), failed, seen), stop.signal);
    return () => stop.abort();
  }

  async prompt(text: string, _when: "now" | "next", localId: string): Promise<void> {
    const talk = await this.#open();
    this.#take([await talk.send(text, localId)]);
  }

  async loadOlder(): Promise<void> {
    const before = this.#said[0]?.seq;
    if (before === undefined) return;
    const talk = await this.#open();
    const older = await talk.page({ before, limit: PAGE });
    this.#take(older);
    this.view.update((now) => ({ ...now, hasOlder: older.length === PAGE }));
  }

  readonly answer = refuse;
  readonly interrupt = refuse;
  readonly resume = refuse;
  readonly setMode = refuse;
  readonly setModel = refuse;

  #open(): Promise<Conversation> {
    this.#opening ??= mine()
      .sessions.converse(this.id)
      .catch((error: unknown) => {
        this.#opening = undefined;
        throw error;
      });
    return this.#opening;
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const talk = await this.#open();
    if (this.#said.length === 0) {
      const page = await talk.page({ limit: PAGE });
      this.view.update((before) => ({ ...before, hasOlder: page.length === PAGE }));
      this.#take(page);
    }
    const row = await rowOf(talk.session);
    const me = account.get();
    const own = me.state === "ready" && row.ownerId === me.userId;
    const may = { prompt: row.accessLevel !== "view", approve: false, own };
    this.view.update((before) => ({
      ...before,
      row,
      may,
      isOpen: true,
      keptAt: undefined,
      error: undefined,
      isGone: undefined,
    }));
    for await (const said of talk.follow({ signal, after: this.#said.at(-1)?.seq ?? 0 })) this.#take([said]);
  }

  /** Each text once, in its order. What this browser sends comes back. */
  #take(some: readonly Said[]): void {
    const all = new Map([...this.#said, ...some].map((said) => [said.seq, said]));
    this.#said = [...all.values()].sort((one, other) => one.seq - other.seq);
    this.view.update((before) => ({ ...before, items: this.#said.map(itemOf) }));
    if (!this.#watching?.signal.aborted) void keepView(this.id, this.view.get());
  }
}

function refuse(): Promise<never> {
  return Promise.reject(new Refused("No agent works in this session: people write to each other in it."));
}
