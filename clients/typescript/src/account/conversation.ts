// A session of people, without an agent: texts that all who may write share one key for. Who sent one is what the server says.

import { fromUtf8 } from "../bytes.js";
import { newId } from "../client.js";
import { isProblem, Refused, SealError } from "../errors.js";
import { asObject, openContent, purposes, sealJson, type KeyRing } from "../seal/ring.js";
import { followSession, type FollowOptions } from "../streams.js";
import type { Account } from "./account.js";
import { readable, readSession, writable, type Session } from "./vault.js";
import type { components } from "../openapi.js";

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
    readonly account: Account,
    public session: Session,
    private ring: KeyRing,
  ) {}

  static async open(account: Account, id: string): Promise<Conversation> {
    const { session, ring } = await readable(account, await readSession(account, id));
    return new Conversation(account, session, ring);
  }

  /** The newest texts, or those before a `seq`, oldest first. */
  async page({ before, limit = 100 }: { before?: number; limit?: number } = {}): Promise<Said[]> {
    const { client } = this.account;
    const params = { path: { id: this.session.id }, query: { limit, ...(before !== undefined && { before }) } };
    const { messages } = await client.data(client.http.GET("/v3/sessions/{id}/messages", { params }));
    const said = await Promise.all(messages.map((message) => this.#opened(message)));
    return said.sort((one, other) => one.seq - other.seq);
  }

  /** Every text above `after`, as it comes. */
  async *follow(options: FollowOptions & { after?: number } = {}): AsyncGenerator<Said, void, undefined> {
    for await (const event of followSession(this.account.client, this.session.id, options)) {
      if (event.event === "message") yield this.#opened(event.data);
      if (event.event === "session") this.session = await readSession(this.account, this.session.id);
    }
  }

  /** Sends a text. After a failure the same `localId` sends it once. */
  async send(text: string, localId: string = newId()): Promise<Said> {
    const { client, userId } = this.account;
    const { id } = this.session;
    for (let tries = 0; tries < 3; tries++) {
      const { session, ring } = await writable(this.account, id);
      [this.session, this.ring] = [session, ring];
      const content = await sealJson(ring, purposes.message(id), { text, from: userId, localId });
      const body = { content, localId, keyEpoch: ring.epoch };
      try {
        const sent = await client.data(client.http.POST("/v3/sessions/{id}/messages", { params: { path: { id } }, body }));
        return await this.#opened(sent);
      } catch (error) {
        if (!isProblem(error, "KEY_EPOCH_OLD")) throw error;
      }
    }
    throw new Refused("The session's key changes all the time, so it was not sent. Try again.");
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
      const { session, ring } = await readable(this.account, await readSession(this.account, this.session.id));
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
