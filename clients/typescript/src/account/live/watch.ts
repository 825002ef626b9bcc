// The messages of a live session as they are opened: with the keys of now, and with who has signed them.

import { SealError } from "../../errors.js";
import { openContent, purposes, type KeyRing } from "../../protocol/seal/ring.js";
import { readBody } from "../../protocol/transcript/body.js";
import { bodyDigest, openEnvelope } from "../../protocol/transcript/envelope.js";
import { readFrame, type Frame } from "../../protocol/transcript/frame.js";
import type { Incoming } from "../../protocol/transcript/view.js";
import type { Context } from "../context.js";
import type { Session } from "../sessions/known.js";
import { readable, readSession } from "../sessions/read.js";
import { Authors } from "./owner.js";
import type { components } from "../../openapi.js";

type Sealed = components["schemas"]["Message"];

export class Watched {
  readonly #authors: Authors;

  constructor(
    private readonly context: Context,
    public session: Session,
    public ring: KeyRing,
  ) {
    this.#authors = new Authors(context, session);
  }

  /** Opens a message and finds out who has signed it. */
  async opened(message: Sealed): Promise<Incoming> {
    const { seq } = message;
    const unsigned = (why: string): Incoming => ({
      seq,
      author: { kind: "nobody", why },
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
    const envelope = await openEnvelope(this.session.id, opened);
    if (typeof envelope === "string") return unsigned(envelope);
    // Who sends is known to the server. It lets nobody name others, whose lists everybody would read.
    if (envelope.user !== message.senderId) return unsigned("it was sent by another user than the one who signed it");
    const said = readBody(envelope.body);
    if ("localId" in said && said.localId !== message.localId) return unsigned("it was signed under another id");
    const author = await this.#authors.of(envelope.user, envelope.key);
    const isAsked = "content" in said && (said.content.type === "permission" || said.content.type === "question");
    return { seq, author, digest: isAsked ? await bodyDigest(envelope.body) : "", message: said };
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

  async #unseal(content: string): Promise<Uint8Array<ArrayBuffer>> {
    const purpose = purposes.message(this.session.id);
    try {
      return await openContent(this.ring, purpose, content);
    } catch (error) {
      if (!(error instanceof SealError && error.kind === "epoch")) throw error;
      // The key was changed in the meantime.
      const { session, ring } = await readable(this.context, await readSession(this.context, this.session.id));
      [this.session, this.ring] = [session, ring];
      return openContent(this.ring, purpose, content);
    }
  }

  async #newKey(): Promise<void> {
    try {
      const { session, ring } = await readable(this.context, this.session);
      [this.session, this.ring] = [session, ring];
    } catch (error) {
      if (!(error instanceof SealError)) throw error;
    }
  }
}
