/** The session behind a public link, read and followed without an account. */
import { isNotFound, Refused, type StreamState } from "@ensemble/client";
import { PublicSession } from "@ensemble/client/account";
import { Store } from "../base/store.ts";
import { connectionIs, onCall, whyOf } from "./connection.ts";
import { keepTrying } from "./keep-trying.ts";
import { textOf } from "./failure.ts";
import { type FeedView, NOTHING, type SessionFeed } from "./feed.ts";
import type { SessionRow } from "./row.ts";
import { withoutLater } from "./later.ts";
import { itemOf } from "./said.ts";
import { whileSeen } from "./seen.ts";

export class PublicFeed implements SessionFeed {
  readonly id: string;
  readonly view = new Store<FeedView>(NOTHING);
  readonly #address: string;
  #shown: PublicSession | undefined;
  readonly #own = crypto.randomUUID();

  /** @param address The whole of it: the key is behind its #, which no server sees. */
  constructor(token: string, address: string) {
    this.id = token;
    this.#address = address;
  }

  watch(): () => void {
    const stop = new AbortController();
    const failed = (error: unknown): void => {
      // That the link opens nothing is an answer.
      if (isNotFound(error)) connectionIs({ state: "open" });
      this.view.update((before) => ({ ...before, error: this.#shown && isNotFound(error) ? ENDED : said(error) }));
    };
    void keepTrying(() => this.#run(stop.signal), failed, stop.signal);
    return () => stop.abort();
  }

  readonly prompt = reading;
  readonly answer = reading;
  readonly interrupt = reading;
  readonly resume = reading;
  readonly setMode = reading;
  readonly setModel = reading;

  async loadOlder(): Promise<void> {
    if (!this.#shown) return;
    await this.#shown.loadOlder();
    this.#draw(this.#shown);
  }

  async #run(signal: AbortSignal): Promise<void> {
    const shown = (this.#shown ??= await PublicSession.open(this.#address, { viewing: this.#viewing(), onCall }));
    await this.#describe(shown);
    this.#draw(shown);
    const onState = (now: StreamState): void =>
      connectionIs(
        now.state === "open" ? now : { state: now.state, why: now.error === undefined ? undefined : whyOf(now.error) },
      );
    await whileSeen(async (seen) => {
      for await (const changed of shown.follow({ signal: seen, onState })) {
        if (changed.state) await this.#describe(shown);
        this.#draw(shown);
      }
    }, signal);
    if (!signal.aborted) this.view.update((before) => ({ ...before, error: ENDED }));
  }

  /** A reload repeats the viewing instead of using the link up: its id is kept for this tab, where the browser lets it. */
  #viewing(): string {
    const name = `viewing ${this.id}`;
    try {
      const viewing = sessionStorage.getItem(name) ?? this.#own;
      sessionStorage.setItem(name, viewing);
      return viewing;
    } catch {
      return this.#own;
    }
  }

  async #describe(shown: PublicSession): Promise<void> {
    const metadata = await shown.metadata().catch(() => undefined);
    const { session } = shown;
    const text = (value: unknown): string | undefined => (typeof value === "string" && value.trim() !== "" ? value : undefined);
    const row: SessionRow = {
      id: session.id,
      ref: "",
      ownerId: "",
      title: text(metadata?.title) ?? "A shared session",
      directory: text(metadata?.path),
      host: text(metadata?.host),
      agent: text(metadata?.["agent"]),
      machineId: undefined,
      attention: "none",
      open: 0,
      online: true,
      thinking: false,
      ended: session.status === "ended",
      archived: false,
      hosted: session.hosted === true,
      accessLevel: "view",
      updatedAt: session.updatedAt,
    };
    this.view.update((before) => ({ ...before, row, isHosted: row.hosted }));
  }

  #draw({ view, said: texts, session, hasOlder }: PublicSession): void {
    const { items, hasLater } = withoutLater(session.hosted ? view.items : texts.map(itemOf));
    const turn = items.findLast(({ shown }) => shown.type === "turn")?.shown;
    this.view.update((before) => ({
      ...before,
      isOpen: true,
      error: undefined,
      state: view.state,
      items,
      hasLater,
      plan: view.plan?.entries ?? [],
      open: view.open,
      hasOlder,
      growing: view.growing().map(([part, { text, isThought }]) => ({ part, text, isThought })),
      turnId: turn?.type === "turn" && turn.turn.state === "started" ? turn.turn.turnId : undefined,
    }));
  }
}

const ENDED = "The link has ended. What you see stays until you close this page.";

function reading(): Promise<never> {
  return Promise.reject(new Refused("A public link is for reading only."));
}

function said(error: unknown): string {
  if (isNotFound(error)) return "This link no longer works. It has ended, was used up, or was replaced. Ask for a new one.";
  return textOf(error);
}
