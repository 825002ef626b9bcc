// A session of people, without an agent: texts under one key, which all writers share. The server alone names the sender.

import { fromUtf8 } from "../../protocol/bytes.js";
import { newId } from "../../client.js";
import { SealError } from "../../errors.js";
import { asObject, openContent, purposes, sealJson, type KeyRing } from "../../protocol/seal/ring.js";
import { followSession, type FollowOptions } from "../../streams.js";
import type { Context } from "../context.js";
import type { Session } from "../sessions/known.js";
import { readableSoFar, readSession } from "../sessions/read.js";
import { sendMessage } from "../sessions/write.js";
import type { components } from "../../openapi.js";

type Sealed = components["schemas"]["Message"];

/** A text, or why it cannot be shown. */
export interface Said {
  seq: number;
  localId: string;
  /** As the server says. */
  senderId: string;
  at: string;
  text?: string;
  error?: string;
}

export class Conversation {
  private constructor(
    private readonly context: Context,
    public session: Session,
    private ring: KeyRing,
  ) {}

  static async open(context: Context, id: string): Promise<Conversation> {
    const { session, ring } = await readableSoFar(context, await readSession(context, id));
    return new Conversation(context, session, ring);
  }

  /** The newest texts, or those before a `seq`, oldest first. */
  async page({ before, limit = 100 }: { before?: number; limit?: number } = {}): Promise<Said[]> {
    const { client } = this.context;
    const params = { path: { id: this.session.id }, query: { limit, ...(before !== undefined && { before }) } };
    const { messages } = await client.call("GET", "/v3/sessions/{id}/messages", params);
    const said = await Promise.all(messages.map((message) => this.#opened(message)));
    return said.sort((one, other) => one.seq - other.seq);
  }

  /** Every text above `after`, as it comes. */
  async *follow(options: FollowOptions & { after?: number } = {}): AsyncGenerator<Said, void, undefined> {
    for await (const event of followSession(this.context.client, this.session.id, options)) {
      if (event.event === "message") yield this.#opened(event.data);
      if (event.event === "session") this.session = await readSession(this.context, this.session.id);
    }
  }

  /** Sends a text. After a failure the same `localId` sends it once. */
  async send(text: string, localId: string = newId()): Promise<Said> {
    const { userId } = this.context;
    const { id } = this.session;
    const sent = await sendMessage(this.context, id, localId, ({ session, ring }) => {
      [this.session, this.ring] = [session, ring];
      return sealJson(ring, purposes.message(id), { text, from: userId, localId });
    });
    return this.#opened(sent);
  }

  async #opened(message: Sealed): Promise<Said> {
    const { seq, localId, senderId, createdAt: at } = message;
    try {
      return { seq, localId, senderId, at, text: await this.#text(message.content) };
    } catch (error) {
      if (error instanceof SealError) return { seq, localId, senderId, at, error: error.message };
      throw error;
    }
  }

  async #text(content: string): Promise<string> {
    const purpose = purposes.message(this.session.id);
    let opened;
    try {
      opened = await openContent(this.ring, purpose, content);
    } catch (error) {
      if (!(error instanceof SealError && error.kind === "epoch")) throw error;
      const { session, ring } = await readableSoFar(this.context, await readSession(this.context, this.session.id));
      [this.session, this.ring] = [session, ring];
      opened = await openContent(this.ring, purpose, content);
    }
    return textOf(opened);
  }
}

/** The text of a message. What is not an object with a text is shown as it is. */
export function textOf(opened: Uint8Array<ArrayBuffer>): string {
  try {
    const { text } = asObject(opened);
    if (typeof text === "string") return text;
  } catch {
    // Another program has written it.
  }
  try {
    return fromUtf8(opened);
  } catch {
    throw new SealError("format", "The message is no text.");
  }
}
