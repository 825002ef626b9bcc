// What a screen shows, one item after the other.

import { utf8Length } from "../bytes.js";
import type {
  Answer,
  Control,
  Failure,
  Permission,
  Prompt,
  Question,
  Receipt,
  Resolved,
  TextPart,
  ToolCall,
  ToolContent,
  Turn,
} from "./body.js";

/** Who a message is by, as was found from its signature and the device lists. */
export type Author =
  /** The session's machine, by its key in the owner's list. */
  | { readonly kind: "host" }
  /** A primary or linked key of this user. `removedIn`: the version of the owner's list in which it was removed. It counts until the
   * machine names that list or a later one: a command after that is a note. */
  | { readonly kind: "person"; readonly user: string; readonly key: string; readonly removedIn?: number }
  /** Any other signer. The text says why, as in "not signed by a device of …". */
  | { readonly kind: "unknown"; readonly why: string };

/** Whether the host has taken a command. */
export type Taken =
  | { readonly is: "not_yet" | "queued" | "done" }
  | { readonly is: "rejected"; readonly code?: Receipt["code"] | undefined; readonly text?: string | undefined };

/** A request of the agent. */
export interface Card {
  readonly requestId: string;
  /** What an answer to it names. */
  readonly digest: string;
  readonly asks: ({ readonly type: "permission" } & Permission) | ({ readonly type: "question" } & Question);
  /** Absent: it is open. */
  readonly resolved?: Resolved;
}

/** Something about the transcript itself. */
export type Note =
  /** Its signer may not write it. Its text is not shown as a card and is not obeyed. */
  | { readonly kind: "not_signed"; readonly why: string }
  /** A command from a device of this user that the machine knew to be removed, with its text if it is a prompt. It counts for nothing. */
  | { readonly kind: "removed"; readonly user: string; readonly text: string }
  /** Messages of the host are missing: these counts, the ends included. */
  | { readonly kind: "missing"; readonly from: number; readonly to: number }
  /** The host's message with this count came before, so this one is not shown. */
  | { readonly kind: "repeated"; readonly n: number }
  /** A command with this id came before. */
  | { readonly kind: "repeated_command"; readonly localId: string }
  | { readonly kind: "unreadable"; readonly why: string };

/** What an item shows. */
export type Shown =
  | { readonly type: "prompt"; readonly prompt: Prompt; readonly taken: Taken }
  | { readonly type: "answer"; readonly answer: Answer; readonly taken: Taken }
  | { readonly type: "control"; readonly control: Control; readonly taken: Taken }
  | { readonly type: "turn"; readonly turn: Turn }
  | { readonly type: "text" | "thought"; readonly part: TextPart }
  | { readonly type: "tool"; readonly call: ToolCall }
  | { readonly type: "card"; readonly card: Card }
  | { readonly type: "error"; readonly failure: Failure }
  | { readonly type: "note"; readonly note: Note }
  /** A type that this version does not know: "something newer". */
  | { readonly type: "newer"; readonly name: string };

/** One thing on the screen. Its place is that of the first message that made it. It is never changed: an amended one is another
 * object with the same id. */
export interface Item {
  /** Rises with each item, and is never used again. */
  readonly id: number;
  /** Of the message that made it. */
  readonly seq: number;
  readonly author: Author;
  /** The machine had named this list of the owner before, and the server does not give it: whether the author's device was in it is not
   * known. */
  readonly unconfirmed?: number;
  /** The id that the writer gave its message. Empty in notes. `state.queue` and `turn.promptId` name it. */
  readonly localId: string;
  /** By the writer's clock. Absent in notes. */
  readonly at?: string;
  readonly shown: Shown;
}

export function takenOf({ outcome, code, text }: Receipt): Taken {
  if (outcome === "queued") return { is: "queued" };
  return outcome === "done" ? { is: "done" } : { is: "rejected", code, text };
}

/** The name of a command: the key that signed it and its `localId`. */
export function commandOf({ author, shown, localId }: Item): string | undefined {
  const isCommand = shown.type === "prompt" || shown.type === "answer" || shown.type === "control";
  return isCommand && author.kind === "person" ? commandName(author.key, localId) : undefined;
}

export const commandName = (key: string, localId: string): string => `${key} ${localId}`;

const sizeOf = (content: ToolContent): number => {
  switch (content.type) {
    case "content":
      return content.content.type === "text" ? content.content.text.length : 0;
    case "diff":
      return content.path.length + (content.oldText?.length ?? 0) + content.newText.length;
    case "terminal":
      return content.output.length;
    default:
      return 0;
  }
};

const sum = <T>(all: readonly T[] | undefined, size: (one: T) => number): number =>
  all?.reduce((whole, one) => whole + size(one), 0) ?? 0;

/** Its size, roughly, to bound what is kept. */
export function shownSize(shown: Shown): number {
  const EACH = 200;
  switch (shown.type) {
    case "prompt":
      return EACH + shown.prompt.text.length + sum(shown.prompt.attachments, attachmentSize);
    case "text":
    case "thought":
      return EACH + shown.part.text.length;
    case "tool": {
      const { toolCallId, title, content, locations } = shown.call;
      return EACH + toolCallId.length + (title?.length ?? 0) + sum(content, sizeOf) + sum(locations, ({ path }) => path.length);
    }
    case "card": {
      const { asks } = shown.card;
      if (asks.type === "permission") return EACH + asks.detail.length + sum(asks.content, sizeOf);
      return EACH + sum(asks.questions, ({ text }) => text.length);
    }
    case "error":
      return EACH + shown.failure.text.length;
    case "note":
      return EACH + ("why" in shown.note ? shown.note.why : "text" in shown.note ? shown.note.text : "").length;
    default:
      return EACH;
  }
}

/** How many bytes an attachment adds to a prompt, as it is encoded. */
export function attachmentSize(attachment: Prompt["attachments"][number]): number {
  if (attachment.type === "image") return attachment.mimeType.length + attachment.data.length;
  return attachment.type === "resource" ? utf8Length(attachment.resource.uri) + utf8Length(attachment.resource.text) : 0;
}
