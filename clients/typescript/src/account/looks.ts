// Looks at a machine: what this device asks it, and texts and files put together from their parts.

import { concat, decode, encode, fromUtf8, sha256, utf8, type Bytes } from "../protocol/bytes.js";
import { isProblem, Refused, SealError } from "../errors.js";
import { Question, type Answered, type FilePart, type Look, type LookedAt, type Since } from "../protocol/look.js";
import type { List } from "../protocol/lists/list.js";
import type { Context } from "./context.js";
import { FRESH } from "./lists.js";
import type { Session } from "./sessions/known.js";

export { LookRefused, Question } from "../protocol/look.js";
export type * from "../protocol/look.js";

/** The machine is not connected, or did not answer. */
export class MachineAway extends Refused {}

/** How long an answer may take, in milliseconds. The server waits 20 s for the machine. */
const WITHIN = 30_000;
/** The longest texts and files that are read as a whole, in bytes. */
const [MOST_SHOWN, MOST_REQUEST] = [512 << 10, 8 << 20];
/** A part has at least 40 KiB, however it is written. */
const MOST_PARTS = 256;

/** A file below the directory of a session. */
export interface LookedFile extends Pick<FilePart, "bytes" | "kind" | "at"> {
  /** Absent: it has more than 512 KiB. */
  content?: Bytes;
}

/** A text, and how many bytes it lacks because it was longer than its bound. */
export interface LookedText {
  text: string;
  cut: number;
}

/** A session that a machine hosts, as this device has judged it. */
export type Hosted = Pick<Session, "id" | "ownerId"> & { machineId: string };

/** Looks below the directory of a session, or at a machine of this account. */
export class Looks {
  constructor(
    private readonly context: Context,
    private readonly place: Hosted | { machineId: string },
  ) {}

  /** Asks the machine. Rejects with `LookRefused` when it says why it does not answer, and with `MachineAway`. */
  async ask<L extends Look>(look: L, signal?: AbortSignal): Promise<Answered<L>> {
    const { client, keys, userId } = this.context;
    const session = "id" in this.place ? this.place : undefined;
    const list = await this.context.people.list(session?.ownerId ?? userId, FRESH);
    const asker = { user: userId, signer: keys.signer, box: keys.box, list: { version: list.version, digest: list.digest } };
    const question = await Question.ask(look, session?.id, this.#lookedAt(list), asker);
    const body = { question: question.sealed, ...(session ? { sessionId: session.id } : { machineId: this.place.machineId }) };
    const late = AbortSignal.timeout(WITHIN);
    try {
      const params = { body, signal: signal ? AbortSignal.any([signal, late]) : late };
      const { answer } = await client.call("POST", "/v1/looks", params);
      return await question.open(answer);
    } catch (error) {
      if (isProblem(error, "MACHINE_AWAY")) throw new MachineAway(error.message);
      if (late.aborted) throw new Refused(`There was no answer within ${WITHIN / 1_000} s. Try again.`);
      throw error;
    }
  }

  /** A file, as a whole if it has at most 512 KiB. */
  async file(path: string, signal?: AbortSignal): Promise<LookedFile> {
    const part = (from: number) => this.ask({ look: "file", path, from }, signal);
    const { first, content } = await whole(part, ({ data }) => decode(data), MOST_SHOWN);
    const { bytes, kind, at } = first;
    return { bytes, kind, at, ...(content && { content }) };
  }

  /** How a file differs, as git writes it. */
  diff(since: Since, path: string, signal?: AbortSignal): Promise<LookedText> {
    const part = (from: number) => this.ask({ look: "git", what: "diff", since, path, from }, signal);
    return text(part, MOST_SHOWN);
  }

  /** What a cut request leaves out. */
  request(requestId: string, what: "detail" | "diff", signal?: AbortSignal): Promise<LookedText> {
    const part = (from: number) => this.ask({ look: "request", requestId, what, from }, signal);
    return text(part, MOST_REQUEST);
  }

  #lookedAt(list: List): LookedAt {
    const { machineId: machine } = this.place;
    const entry = list.machine(machine);
    if (!entry) throw new Refused("The machine is not in its owner's list of devices any more, so it cannot be asked.");
    return {
      owner: "ownerId" in this.place ? this.place.ownerId : this.context.userId,
      machine,
      key: entry.key,
      boxKey: entry.boxKey,
    };
  }
}

async function text(
  part: (from: number) => Promise<{ text: string; bytes: number; digest: string; cut?: number }>,
  most: number,
): Promise<LookedText> {
  const { first, content } = await whole(part, (one) => utf8(one.text), most);
  if (!content) throw new SealError("bound", "The answer of the machine is too long.");
  return { text: fromUtf8(content), cut: first.cut ?? 0 };
}

/** Reads all parts of what is not longer than `most`, and of a longer one only the first. What changes while it is read is read once more. */
async function whole<P extends { bytes: number; digest: string }>(
  part: (from: number) => Promise<P>,
  bytesOf: (part: P) => Bytes | undefined,
  most: number,
): Promise<{ first: P; content?: Bytes }> {
  for (let tries = 0; tries < 2; tries++) {
    const first = await part(0);
    if (first.bytes > most) return { first };
    const pieces: Bytes[] = [];
    let [length, next] = [0, first];
    for (;;) {
      const piece = bytesOf(next) ?? new Uint8Array();
      pieces.push(piece);
      length += piece.length;
      if (piece.length === 0 || length >= first.bytes || pieces.length >= MOST_PARTS) break;
      next = await part(length);
      if (next.digest !== first.digest) break;
    }
    const content = concat(...pieces);
    if (length === first.bytes && encode(await sha256(content)) === first.digest) return { first, content };
  }
  throw new Refused("It has changed while it was read. Try again when the agent rests.");
}
