// Looks: a device reads something on a machine, and only that device can open the answer. The server passes both on and can read
// neither. Nothing stores a look, and it changes nothing.

import { digestText, encode, fromUtf8, random, utf8 } from "./bytes.js";
import { SealError } from "../errors.js";
import { isSigned, type Signer } from "./ed25519.js";
import { openWith, sealTo, type BoxPair } from "./hpke.js";
import {
  flag,
  list,
  listOrNone,
  nullable,
  optional,
  shape,
  text,
  time,
  whole,
  word,
  type Read,
  type Reader,
} from "./transcript/shape.js";
import type { KnownList } from "./transcript/body.js";

const [QUESTION, ANSWER] = ["ensemble-look-v1", "ensemble-look-answer-v1"];
/** The longest question and the longest answer, sealed. */
const [MOST_QUESTION, MOST_ANSWER] = [16 << 10, 1 << 20];
/** The most entries of a list in an answer. */
const MOST_ENTRIES = 5_000;

/** With what a directory is compared: its last commit, or what was there when the session began. */
export type Since = "now" | "begin";

/** What is looked at, and what is asked about it. Paths are relative to the directory of the session. */
export type Look =
  | { look: "request"; requestId: string; what: "detail" | "diff"; from?: number }
  | { look: "names"; below?: string; depth: 1 | "all" }
  | { look: "file"; path: string; from?: number }
  | { look: "git"; what: "state" | "log"; since: Since }
  | { look: "git"; what: "diff"; since: Since; path: string; from?: number }
  | { look: "directories"; below?: string }
  | { look: "conversations"; directory: string; id?: string; from?: number };

const bounded =
  <T>(read: Reader<T[]>): Reader<T[]> =>
  (value, at) => {
    if (Array.isArray(value) && value.length > MOST_ENTRIES)
      throw new SealError("bound", `${at} has more than ${MOST_ENTRIES} entries.`);
    return read(value, at);
  };

/** A part of a text. The next one begins where it ends. `digest` is of the whole text, SHA-256 in base64url, and `bytes` is its length;
 * `cut` is what the text lacks, because it was longer than its bound. */
const part = shape({ text, bytes: whole, digest: text, cut: optional(whole) });

/** The first 512 KiB of a file can be asked for, in parts: `data` is one in base64url, and `digest` is of what can be asked for. */
const filePart = shape({ bytes: whole, at: time, digest: text, kind: word<"text" | "picture" | "other">(), data: text });

/** A kind of `other` cannot be opened, also because of its name. What is `ignored` may hold secrets, and guests do not see it. */
const names = shape({
  names: bounded(
    list(shape({ path: text, kind: word<"file" | "directory" | "link" | "other">(), bytes: optional(whole), ignored: flag })),
  ),
  more: flag,
});

/** `seen` is another one when the rest is. `files` are the first ones of `fileCount`; `upstream` is what the branch follows. */
const gitState = shape({
  seen: text,
  head: optional(text),
  branch: optional(text),
  upstream: optional(text),
  ahead: optional(whole),
  behind: optional(whole),
  remotes: bounded(listOrNone(shape({ name: text, url: text }))),
  files: bounded(list(shape({ path: text, kind: text, added: nullable(whole), removed: nullable(whole) }))),
  fileCount: whole,
  added: whole,
  removed: whole,
  notes: bounded(listOrNone(text)),
});

/** The newest commits, the newest first. */
const gitLog = shape({ commits: bounded(list(shape({ id: text, author: text, at: time, subject: text }))) });

const directories = shape({ directories: bounded(list(shape({ path: text, recent: flag }))), more: flag });

/** The agents' own conversations in a directory. `inUse` says why a program may work with one. */
const conversations = shape({
  conversations: bounded(
    list(
      shape({
        agent: text,
        id: text,
        firstPrompt: text,
        changedAt: time,
        inUse: optional(word<"just_changed" | "open">()),
      }),
    ),
  ),
});

/** Turns from the one that was asked for on, of `count`. They are not signed, and no messages. */
const turns = shape({
  turns: bounded(list(shape({ by: word<"person" | "agent">(), text, at: optional(time) }))),
  count: whole,
});

export type Part = Read<typeof part>;
export type FilePart = Read<typeof filePart>;
export type Names = Read<typeof names>;
export type GitState = Read<typeof gitState>;
export type GitLog = Read<typeof gitLog>;
export type Directories = Read<typeof directories>;
export type EarlierConversations = Read<typeof conversations>;
export type EarlierTurns = Read<typeof turns>;

/** What is answered to a look. */
export type Answered<L extends Look> = L extends { look: "request" } | { look: "git"; what: "diff" }
  ? Part
  : L extends { look: "names" }
    ? Names
    : L extends { look: "file" }
      ? FilePart
      : L extends { look: "git"; what: "state" }
        ? GitState
        : L extends { look: "git"; what: "log" }
          ? GitLog
          : L extends { look: "directories" }
            ? Directories
            : L extends { look: "conversations"; id: string }
              ? EarlierTurns
              : EarlierConversations;

function readerOf(look: Look): Reader<unknown> {
  switch (look.look) {
    case "request":
      return part;
    case "names":
      return names;
    case "file":
      return filePart;
    case "git":
      return { state: gitState, diff: part, log: gitLog }[look.what];
    case "directories":
      return directories;
    case "conversations":
      return look.id === undefined ? conversations : turns;
  }
}

/** The machine has refused a look, and `message` says what happened and what to do. */
export class LookRefused extends Error {
  override readonly name = "LookRefused";
  constructor(
    /** A code of a receipt, as `busy`, `superseded` or `not_allowed`. */
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The machine that is asked, by the owner's newest list. */
export interface LookedAt {
  owner: string;
  machine: string;
  /** Ed25519 and X25519, as they are listed. */
  key: string;
  boxKey: string;
}

/** The device that asks. Its list is the one of the session's owner that it knows. */
export interface Asker {
  user: string;
  signer: Signer;
  box: BoxPair;
  list: KnownList;
}

const signedAnswer = shape({ body: text, sig: text });
/** An answer is none when it has an `error`. */
const refusal = shape({ error: optional(text), text: (value: unknown) => (typeof value === "string" ? value : undefined) });

/** A question that was sealed for one machine. It takes one answer. */
export class Question<L extends Look> {
  #isOpen = true;

  private constructor(
    /** As it is sent. */
    readonly sealed: string,
    private readonly look: L,
    private readonly digest: string,
    private readonly of: LookedAt,
    private readonly box: BoxPair,
  ) {}

  /** Signs and seals a question. `session` is the one in whose directory it looks; a look at a machine has none. */
  static async ask<L extends Look>(
    look: L,
    session: string | undefined,
    of: LookedAt,
    asker: Asker,
    now = new Date(),
  ): Promise<Question<L>> {
    const head = { v: 1, ...(session !== undefined && { session }), nonce: encode(random(16)), at: now.toISOString() };
    const body = JSON.stringify({ ...head, list: asker.list, ...look });
    return Question.asked(body, look, of, asker);
  }

  /** The same with a body that was written before. */
  static async asked<L extends Look>(
    body: string,
    look: L,
    of: LookedAt,
    { user, signer, box }: Omit<Asker, "list">,
  ): Promise<Question<L>> {
    const sig = encode(await signer.sign(utf8([QUESTION, of.machine, user, body].join("\n"))));
    const signed = utf8(JSON.stringify({ body, user, key: signer.publicKey, sig }));
    const sealed = await sealTo(of.boxKey, signed, [QUESTION, of.owner, of.machine].join("\n"), QUESTION);
    if (sealed.length > MOST_QUESTION) throw new SealError("bound", "The question is too long. Use a shorter path.");
    return new Question(sealed, look, await digestText(body), of, box);
  }

  /** Opens the answer of the machine. Throws `LookRefused` when that says why there is none. Another answer is not taken. */
  async open(answer: string): Promise<Answered<L>> {
    if (answer.length > MOST_ANSWER) throw new SealError("bound", "The answer of the machine is too long.");
    const { machine, key } = this.of;
    const aad = [ANSWER, machine, this.digest].join("\n");
    const { body, sig } = read(signedAnswer, fromUtf8(await openWith(this.box, answer, aad, ANSWER)));
    if (!(await isSigned(key, utf8(`${aad}\n${body}`), sig)))
      throw new SealError("signature", "The answer is not signed by the machine that was asked. Do not trust this server.");
    if (!this.#isOpen) throw new SealError("refused", "The question was answered before.");
    this.#isOpen = false;
    const { error, text } = read(refusal, body);
    if (error !== undefined) throw new LookRefused(error, text ?? `The machine has refused it (${error}).`);
    return read(readerOf(this.look), body) as Answered<L>;
  }
}

function read<T>(reader: Reader<T>, body: string): T {
  try {
    return reader(JSON.parse(body), "the answer");
  } catch (error) {
    if (error instanceof SealError) throw error;
    throw new SealError(
      "format",
      "The answer of the machine has a form that is not known here. Update this program and the machine.",
    );
  }
}
