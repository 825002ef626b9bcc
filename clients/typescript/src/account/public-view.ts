// A session behind a public link: any person who has the whole address can read it, live, without an account.

import { utf8 } from "../protocol/bytes.js";
import { Client, newId, type ClientOptions } from "../client.js";
import { Distrust, Refused, SealError } from "../errors.js";
import { readShareAddress } from "../protocol/seal/link.js";
import { asObject, openContent, purposes, type KeyRing } from "../protocol/seal/ring.js";
import { openMetadata, partOf } from "../protocol/seal/said.js";
import { followLink, type FollowOptions } from "../streams.js";
import { readBody, writerOf } from "../protocol/transcript/body.js";
import { openEnvelope } from "../protocol/transcript/envelope.js";
import { readFrame } from "../protocol/transcript/frame.js";
import type { Author } from "../protocol/transcript/item.js";
import { View, type Changed, type Incoming } from "../protocol/transcript/view.js";
import { textOf, type Said } from "./live/conversation.js";
import type { Metadata } from "./sessions/titles.js";
import type { components } from "../openapi.js";

type Schemas = components["schemas"];
type Sealed = Schemas["PublicMessage"];

/** A link of an earlier version, or of a session whose machine was removed. */
export const NO_HOST = "this link does not say which machine hosts the session; ask for a new link";

/** Messages that are loaded at once. */
const PAGE = 300;

export interface PublicOptions extends Omit<ClientOptions, "base" | "credential"> {
  viewing?: string;
}

export class PublicSession {
  /** What a live session shows. The message alone names the person who has signed it: a reader without an account cannot read device
   * lists. The machine's key is in the link. Every user who may write to the session can sign, so nothing else identifies the machine. */
  readonly view = new View();
  /** What a session of people says. */
  readonly said: Said[] = [];
  #first: number | undefined;

  private constructor(
    private readonly client: Client,
    private readonly token: string,
    private readonly viewToken: string,
    public session: Schemas["PublicSession"],
    private readonly ring: KeyRing,
    /** The key of the session's machine. */
    private readonly host: string | undefined,
  ) {}

  /** Opens a link, which costs one use, and loads its newest messages. A program that opens it again passes the `viewing` of before
   * (any id): then it costs no other use. */
  static async open(address: string, { viewing = newId(), ...options }: PublicOptions = {}): Promise<PublicSession> {
    const { base, token, secret } = readShareAddress(address);
    const client = new Client({ ...options, base });
    const headers = { "idempotency-key": viewing };
    const params = { path: { token }, query: { limit: PAGE } };
    const page = await client.call("GET", "/v1/public-sessions/{token}", { ...params, headers });
    if (!page.encryptedKey)
      throw new Refused("This link was made without a key, so the session cannot be opened. Ask for a new link.");
    const ring = await secret.open(page.encryptedKey, page.session.id);
    checkHosted(secret.host, page.session);
    const opened = new PublicSession(client, token, page.viewToken, page.session, ring, secret.host);
    const messages = sorted(page.messages);
    opened.#first = messages[0]?.seq;
    for (const message of messages) await opened.#take(message);
    return opened;
  }

  /** Title and directory, as the machine that the link names has signed them. Every user who may write could have given others, so of a
   * session of people there are none. */
  async metadata(): Promise<Metadata> {
    if (this.host === undefined) return {};
    const { id, metadataVersion, metadata } = this.session;
    const part = await partOf(await openMetadata(this.ring, id, metadataVersion, metadata), id, this.host);
    return part ? (asObject(utf8(part.body)) as Metadata) : {};
  }

  /** Whether there are messages before the first one that was taken. */
  get hasOlder(): boolean {
    return this.#first !== undefined && this.#first > 1;
  }

  /** Takes the messages before the first one. False: there are none. */
  async loadOlder(): Promise<boolean> {
    const first = this.#first;
    if (first === undefined || !this.hasOlder) return false;
    const query = { limit: PAGE, before: first };
    const headers = { "x-view-token": this.viewToken };
    const params = { path: { token: this.token }, query };
    const page = await this.client.call("GET", "/v1/public-sessions/{token}", { ...params, headers });
    const messages = sorted(page.messages);
    this.#first = messages[0]?.seq ?? 1;
    if (this.session.hosted) this.view.older(await Promise.all(messages.map((message) => this.#incoming(message))));
    else this.said.unshift(...(await Promise.all(messages.map((message) => this.#text(message)))));
    return true;
  }

  /** Follows the session until the signal is aborted. Each change is given; of a session of people it is empty. */
  async *follow(options: FollowOptions = {}): AsyncGenerator<Changed, void, undefined> {
    const after = this.view.lastSeq ?? this.said.at(-1)?.seq ?? this.session.lastSeq;
    for await (const event of followLink(this.client, this.token, this.viewToken, { ...options, after })) {
      if (event.event === "message") {
        yield await this.#take(event.data);
      } else if (event.event === "session") {
        checkHosted(this.host, event.data);
        this.session = event.data;
        yield { ...NOTHING, state: true };
      } else {
        const opened = await openContent(this.ring, purposes.liveFrame(this.session.id), event.data.content).catch(
          () => undefined,
        );
        const frame = opened && readFrame(opened);
        if (frame) yield this.view.frame(frame);
      }
    }
  }

  async #take(message: Sealed): Promise<Changed> {
    if (this.session.hosted) return this.view.message(await this.#incoming(message));
    this.said.push(await this.#text(message));
    return NOTHING;
  }

  async #incoming({ seq, content }: Sealed): Promise<Incoming> {
    const unsigned = (why: string): Incoming => ({
      seq,
      author: { kind: "unknown", why },
      digest: "",
      message: { unreadable: why },
    });
    try {
      const envelope = await openEnvelope(
        this.session.id,
        await openContent(this.ring, purposes.message(this.session.id), content),
      );
      if (typeof envelope === "string") return unsigned(envelope);
      const message = readBody(envelope.body);
      const isHost = "content" in message && writerOf(message.content) === "host";
      if (isHost && this.host === undefined) return unsigned(NO_HOST);
      if (isHost && this.host !== envelope.key) return unsigned("not signed by the session's machine");
      const author: Author = isHost ? { kind: "host" } : { kind: "person", user: envelope.user, key: envelope.key };
      // A reader of a link cannot answer, so no digest is needed.
      return { seq, author, digest: "", message };
    } catch (error) {
      if (error instanceof SealError) return unsigned(error.message);
      throw error;
    }
  }

  async #text({ seq, content, createdAt: at }: Sealed): Promise<Said> {
    const known = { seq, localId: "", senderId: "", at };
    try {
      return { ...known, text: textOf(await openContent(this.ring, purposes.message(this.session.id), content)) };
    } catch (error) {
      if (error instanceof SealError) return { ...known, error: error.message };
      throw error;
    }
  }
}

/** The link of a machine's session names the machine. A server that calls it a session of people would have unsigned texts shown. */
function checkHosted(host: string | undefined, session: Schemas["PublicSession"]): void {
  if (host !== undefined && !session.hosted) {
    throw new Distrust("The server says that no machine hosts this session, but the link names one. Do not trust it.");
  }
}

const NOTHING: Changed = { items: [], state: false, plan: false, live: false };

const sorted = (messages: Sealed[]): Sealed[] => messages.sort((one, other) => one.seq - other.seq);
