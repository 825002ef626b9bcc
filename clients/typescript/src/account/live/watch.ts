// The messages of a live session as they are opened: with the keys of now, and with who has signed them.

import { SealError } from "../../errors.js";
import { epochOf, openContent, purposes, type KeyRing } from "../../protocol/seal/ring.js";
import { readBody } from "../../protocol/transcript/body.js";
import { bodyDigest, openEnvelope } from "../../protocol/transcript/envelope.js";
import { readFrame, type Frame } from "../../protocol/transcript/frame.js";
import type { Incoming } from "../../protocol/transcript/view.js";
import type { Context } from "../context.js";
import type { Session } from "../sessions/known.js";
import { readableSoFar, readSession } from "../sessions/read.js";
import { Authors } from "./owner.js";
import type { components } from "../../openapi.js";

type Sealed = components["schemas"]["Message"];

export class Watched {
  readonly authors: Authors;
  /** The newest key that a message has named and that the server was asked for. It is asked once: a change of the session shows when the
   * key comes later. */
  #asked: { epoch: number; done: Promise<void> } | undefined;

  constructor(
    private readonly context: Context,
    public session: Session,
    public ring: KeyRing,
  ) {
    this.authors = new Authors(context, session);
  }

  /** Opens a message and finds out who has signed it. A number: it is sealed with the key of this epoch, which this device has not been
   * given yet. */
  async opened(message: Sealed): Promise<Incoming | number> {
    const { seq } = message;
    const unsigned = (why: string): Incoming => ({
      seq,
      author: { kind: "unknown", why },
      digest: "",
      message: { unreadable: why },
    });
    let opened;
    try {
      opened = await this.#unseal(message.content);
    } catch (error) {
      if (error instanceof SealError) return unsigned(error.message);
      throw error;
    }
    if (typeof opened === "number") return opened;
    const envelope = await openEnvelope(this.session.id, opened);
    if (typeof envelope === "string") return unsigned(envelope);
    // The server knows the sender. It lets no sender name another user, whose lists every reader would fetch.
    if (envelope.user !== message.senderId) return unsigned("it was sent by another user than the one who signed it");
    const said = readBody(envelope.body);
    if ("localId" in said && said.localId !== message.localId) return unsigned("it was signed under another id");
    const author = await this.authors.of(envelope.user, envelope.key);
    const isAsked = "content" in said && (said.content.type === "permission" || said.content.type === "question");
    return { seq, author, digest: isAsked ? await bodyDigest(envelope.body) : "", message: said };
  }

  /** Notes the newest list that the machine names in these messages. */
  learn(opened: readonly (Incoming | number)[]): Promise<void> {
    const named = (one: Incoming | number): number =>
      typeof one !== "number" && one.author.kind === "host" && "list" in one.message ? one.message.list.version : 0;
    return this.authors.learn(Math.max(0, ...opened.map(named)));
  }

  /** Opens a live frame. Undefined: it does not open, or is none. */
  async frame(content: string): Promise<Frame | undefined> {
    const opened = await openContent(this.ring, purposes.liveFrame(this.session.id), content).catch(() => undefined);
    return opened && readFrame(opened);
  }

  /** The session has changed. */
  async changed(): Promise<void> {
    this.session = await readSession(this.context, this.session.id);
    // A title is signed for the key of now. A guest may not have been given it yet.
    if (this.session.keyEpoch > this.ring.epoch) await this.#newKey();
  }

  async #unseal(content: string): Promise<Uint8Array<ArrayBuffer> | number> {
    const epoch = epochOf(content);
    if (epoch > this.ring.epoch) await this.#ask(epoch);
    // A key that the session has never had will not come.
    if (epoch > this.ring.epoch && epoch <= this.session.keyEpoch) return epoch;
    return openContent(this.ring, purposes.message(this.session.id), content);
  }

  /** The key was changed in the meantime. */
  async #ask(epoch: number): Promise<void> {
    if (epoch > (this.#asked?.epoch ?? 0)) this.#asked = { epoch, done: this.changed() };
    const asked = this.#asked;
    try {
      await asked?.done;
    } catch (error) {
      if (this.#asked === asked) this.#asked = undefined;
      throw error;
    }
  }

  async #newKey(): Promise<void> {
    try {
      const { session, ring } = await readableSoFar(this.context, this.session);
      [this.session, this.ring] = [session, ring];
    } catch (error) {
      if (!(error instanceof SealError)) throw error;
    }
  }
}
