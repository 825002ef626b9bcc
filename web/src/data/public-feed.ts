/** The session behind a public link, read and followed without an account. The key is in the fragment of the address, which no server
 * sees. Without an account there are no checked device lists: a person's message counts when its signature is good, and a machine's when
 * it is by the key that the address names. */
import { Client, followLink, isProblem, Refused } from "@ensemble/client";
import type { components } from "@ensemble/client";
import { type KeyRing, LinkSecret, openContent, openJson, purposes } from "@ensemble/client/seal";
import { bodyDigest, type Incoming, type Item, openEnvelope, readBody, readFrame, View } from "@ensemble/client/transcript";
import { Store } from "../base/store.ts";
import { textOf } from "./failure.ts";
import type { FeedView, SessionFeed } from "./feed.ts";
import type { SessionRow } from "./row.ts";

type Schemas = components["schemas"];

const PAGE = 200;
const COMMANDS = new Set(["prompt", "answer", "control"]);

export class PublicFeed implements SessionFeed {
  readonly id: string;
  readonly view: Store<FeedView>;
  readonly #fragment: string;
  readonly #client = new Client({ base: location.origin });
  readonly #shown = new View({ items: 20_000, size: 128 << 20 });
  #session = "";
  #ring: KeyRing | undefined;
  #viewToken: string | undefined;
  #before: number | undefined;
  /** The key of the machine. */
  #host: string | undefined;
  #stop: AbortController | undefined;

  constructor(token: string, fragment: string) {
    this.id = token;
    this.#fragment = fragment;
    this.view = new Store<FeedView>({
      row: undefined, state: undefined, items: [], open: [], plan: [], growing: [], turnId: undefined, hasOlder: false, isOpen: false, error: undefined,
      isHosted: true, may: { prompt: false, approve: false, own: false }, rejected: undefined,
    });
  }

  watch(): () => void {
    const stop = new AbortController();
    this.#stop = stop;
    this.#run(stop.signal).catch((error: unknown) => {
      if (!stop.signal.aborted) this.view.update((before) => ({ ...before, error: said(error) }));
    });
    return () => stop.abort();
  }

  prompt(): Promise<void> {
    return reading();
  }

  answer(): Promise<void> {
    return reading();
  }

  interrupt(): Promise<void> {
    return reading();
  }

  resume(): Promise<void> {
    return reading();
  }

  setMode(): Promise<void> {
    return reading();
  }

  setModel(): Promise<void> {
    return reading();
  }

  async loadOlder(): Promise<void> {
    if (this.#before === undefined) return;
    const page = await this.#read({ before: this.#before });
    this.#shown.older(await this.#all(page.messages));
    this.#before = page.nextBefore ?? undefined;
    this.#draw();
  }

  async #run(signal: AbortSignal): Promise<void> {
    const secret = LinkSecret.fromFragment(this.#fragment);
    const page = await this.#read({});
    this.#session = page.session.id;
    if (!page.encryptedKey) throw new Refused("This link was made without a key, so the session cannot be opened with it.");
    this.#ring = await secret.open(page.encryptedKey, page.session.id);
    this.#host = secret.host;
    const row = await this.#row(page.session);
    this.view.update((before) => ({ ...before, row, isHosted: row.hosted }));
    for (const one of await this.#all(page.messages)) this.#shown.message(one);
    this.#before = page.nextBefore ?? undefined;
    this.#draw();
    const after = this.#shown.lastSeq ?? page.session.lastSeq;
    for await (const event of followLink(this.#client, this.id, page.viewToken, { signal, after })) {
      if (event.event === "message") this.#shown.message(await this.#opened(event.data));
      else if (event.event === "live") await this.#frame(event.data.content);
      else await this.#changed(event.data);
      this.#draw();
    }
    if (!signal.aborted) this.view.update((before) => ({ ...before, error: "The link has ended. What was shown stays as long as this page is open." }));
  }

  async #read(query: { before?: number }): Promise<Schemas["PublicView"]> {
    const params = { path: { token: this.id }, query: { limit: PAGE, ...query } };
    // A reload repeats the viewing instead of using the link up: its key is kept for this tab.
    const name = `viewing ${this.id}`;
    const key = sessionStorage.getItem(name) ?? crypto.randomUUID();
    sessionStorage.setItem(name, key);
    const headers: Record<string, string> = this.#viewToken === undefined ? { "Idempotency-Key": key } : { "X-View-Token": this.#viewToken };
    const signal = this.#stop?.signal;
    const page = await this.#client.data(this.#client.http.GET("/v1/public-sessions/{token}", { params, headers, ...(signal && { signal }) }));
    this.#viewToken = page.viewToken;
    page.messages.sort((one, other) => one.seq - other.seq);
    return page;
  }

  async #row(session: Schemas["PublicSession"]): Promise<SessionRow> {
    const metadata = this.#ring ? await openJson(this.#ring, purposes.sessionMetadata(session.id), session.metadata).catch(() => undefined) : undefined;
    const text = (value: unknown): string | undefined => (typeof value === "string" && value.trim() !== "" ? value : undefined);
    return {
      id: session.id, ref: "", ownerId: "", title: text(metadata?.title) ?? "A shared session", directory: text(metadata?.path), host: text(metadata?.host),
      agent: text(metadata?.agent), machineId: undefined, attention: "none", open: 0, online: true, thinking: false, ended: session.status === "ended",
      archived: false, hosted: session.hosted === true, accessLevel: "view", updatedAt: session.updatedAt,
    };
  }

  async #changed(session: Schemas["PublicSession"]): Promise<void> {
    const row = await this.#row(session);
    this.view.update((before) => ({ ...before, row }));
  }

  async #frame(content: string): Promise<void> {
    if (!this.#ring) return;
    const opened = await openContent(this.#ring, purposes.liveFrame(this.#session), content).catch(() => undefined);
    const frame = opened && readFrame(opened);
    if (frame) this.#shown.frame(frame);
  }

  async #all(messages: readonly Schemas["PublicMessage"][]): Promise<Incoming[]> {
    const opened: Incoming[] = [];
    for (const message of messages) opened.push(await this.#opened(message));
    return opened;
  }

  async #opened({ seq, content, createdAt }: Schemas["PublicMessage"]): Promise<Incoming> {
    const unsigned = (why: string): Incoming => ({ seq, author: { kind: "nobody", why }, digest: "", message: { unreadable: why } });
    const opened = this.#ring && (await openContent(this.#ring, purposes.message(this.#session), content).catch(() => undefined));
    if (!opened) return unsigned("sealed with a key that this link does not have");
    const envelope = await openEnvelope(this.#session, opened);
    if (typeof envelope === "string") return this.view.get().isHosted ? unsigned(envelope) : spoken(seq, createdAt, opened);
    const message = readBody(envelope.body);
    const { user, key } = envelope;
    if (!("content" in message)) return { seq, author: { kind: "person", user, key }, digest: "", message };
    if (COMMANDS.has(message.content.type)) return { seq, author: { kind: "person", user, key }, digest: "", message };
    if (this.#host === undefined) return unsigned("this link does not say which machine hosts the session; ask for a new link");
    if (this.#host !== key) return unsigned("signed by another key than the machine's");
    return { seq, author: { kind: "host" }, digest: await bodyDigest(envelope.body), message };
  }

  #draw(): void {
    const { state, plan } = this.#shown;
    // Between people there is no machine that takes what they write.
    const items = this.view.get().isHosted ? this.#shown.items.slice() : this.#shown.items.map(asTaken);
    const turn = items.findLast(({ shown }) => shown.type === "turn")?.shown;
    this.view.update((before) => ({
      ...before, isOpen: true, state, items, plan: plan?.entries ?? [], open: this.#shown.open, hasOlder: this.#before !== undefined,
      growing: this.#shown.growing().map(([part, { text, isThought }]) => ({ part, text, isThought })),
      turnId: turn?.type === "turn" && turn.turn.state === "started" ? turn.turn.turnId : undefined,
    }));
  }
}

/** A text of a session between people, which is not signed. */
function spoken(seq: number, at: string, opened: Uint8Array): Incoming {
  const written = new TextDecoder().decode(opened);
  let [text, user] = [written, ""];
  try {
    const body = JSON.parse(written) as { text?: unknown; from?: unknown };
    if (typeof body.text === "string") text = body.text;
    if (typeof body.from === "string") user = body.from;
  } catch {
    // Another program has written it.
  }
  const content = { type: "prompt" as const, text, attachments: [], when: "next" as const };
  const list = { version: 1, digest: "" };
  return { seq, author: { kind: "person", user, key: user }, digest: "", message: { localId: `m${seq}`, at, n: undefined, list, content } };
}

function asTaken(item: Item): Item {
  return item.shown.type === "prompt" ? { ...item, shown: { ...item.shown, taken: { is: "done" } } } : item;
}

function reading(): Promise<never> {
  return Promise.reject(new Refused("A public link is for reading."));
}

function said(error: unknown): string {
  if (isProblem(error) && error.status === 404) return "This link does not open anything: it has ended, was used up, or was replaced by another one. Ask for a new one.";
  return textOf(error);
}
