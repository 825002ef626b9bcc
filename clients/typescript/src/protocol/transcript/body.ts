// The body of a message: the members that all have, and one type for each kind of content. docs/TRANSCRIPT.md defines them; the
// words are those of the Agent Client Protocol, version 1, where it has them.

import { utf8Length } from "../bytes.js";
import {
  BadShape,
  flag,
  integer,
  list,
  listOrNone,
  nullable,
  number,
  object,
  optional,
  record,
  shape,
  tagged,
  text,
  time,
  whole,
  word,
  type Read,
} from "./shape.js";

/** The bytes of a body. */
export const MOST_BODY = 640 * 1_024;
/** The bytes of every id. */
export const MOST_ID = 128;
/** The bytes of all attachments of a prompt, as they are encoded. */
export const MOST_ATTACHMENTS = 512 * 1_024;

const toolContent = tagged({
  content: shape({ content: tagged({ text: shape({ text }) }), cut: optional(whole) }),
  diff: shape({ path: text, oldText: nullable(text), newText: text, line: optional(whole), cut: optional(whole) }),
  terminal: shape({
    terminalId: text,
    output: text,
    cut: optional(whole),
    exitStatus: optional(shape({ exitCode: optional(integer), signal: optional(text) })),
  }),
});

const attachment = tagged({
  image: shape({ mimeType: text, data: text }),
  resource: shape({ resource: shape({ uri: text, mimeType: optional(text), text }) }),
});

const textPart = shape({
  turnId: text,
  part: whole,
  of: optional(whole),
  text,
  interrupted: flag,
  parentToolCallId: optional(text),
});

const mode = word<"ask" | "edit" | "plan" | "bypass">();
const may = word<"prompt" | "approve" | "none">();
const access = shape({
  user: text,
  account: text,
  may,
  version: whole,
  removed: optional(flag),
  keyEpoch: optional(whole),
  key: optional(text),
});
const choice = shape({ id: text, name: text });

const contents = {
  prompt: shape({ text, attachments: listOrNone(attachment), when: word<"now" | "next">(), directory: optional(text) }),
  turn: shape({
    turnId: text,
    state: word<"started" | "ended">(),
    cause: word<"prompt" | "background" | "task">(),
    promptId: optional(text),
    text: optional(text),
    stopReason: optional(word<"end_turn" | "cancelled" | "max_tokens" | "refusal" | "limit" | "error">()),
    usage: optional(
      shape({
        inputTokens: whole,
        outputTokens: whole,
        thoughtTokens: optional(whole),
        cachedReadTokens: optional(whole),
        cachedWriteTokens: optional(whole),
      }),
    ),
    costUsd: optional(number),
  }),
  text: textPart,
  thought: textPart,
  tool_call: shape({
    toolCallId: text,
    turnId: text,
    part: optional(whole),
    title: optional(text),
    kind: optional(
      word<"read" | "edit" | "delete" | "move" | "search" | "execute" | "think" | "fetch" | "switch_mode" | "other">(),
    ),
    status: optional(word<"pending" | "in_progress" | "completed" | "failed" | "interrupted">()),
    locations: optional(list(shape({ path: text, line: optional(whole) }))),
    content: optional(list(toolContent)),
    parentToolCallId: optional(text),
  }),
  plan: shape({
    entries: list(
      shape({
        content: text,
        priority: word<"high" | "medium" | "low">(),
        status: word<"pending" | "in_progress" | "completed">(),
      }),
    ),
  }),
  permission: shape({
    requestId: text,
    toolCallId: optional(text),
    title: text,
    detail: text,
    cut: optional(whole),
    content: listOrNone(toolContent),
    options: list(
      shape({ optionId: text, name: text, kind: word<"allow_once" | "allow_always" | "reject_once" | "reject_always">() }),
    ),
  }),
  question: shape({
    requestId: text,
    toolCallId: optional(text),
    questions: list(
      shape({
        id: text,
        text,
        header: optional(text),
        options: optional(list(shape({ label: text, description: optional(text) }))),
        multiple: flag,
      }),
    ),
  }),
  answer: shape({
    requestId: text,
    digest: text,
    optionId: optional(text),
    answers: optional(record(list(text))),
    message: optional(text),
  }),
  resolved: shape({
    requestId: text,
    outcome: word<"selected" | "answered" | "withdrawn">(),
    optionId: optional(text),
    by: optional(text),
    reason: optional(text),
  }),
  control: readControl,
  receipt: shape({
    commandId: text,
    key: text,
    outcome: word<"queued" | "done" | "rejected">(),
    code: optional(
      word<
        | "not_allowed"
        | "bad_signature"
        | "unknown_key"
        | "stale"
        | "repeated"
        | "superseded"
        | "old_key"
        | "wrong_directory"
        | "busy"
        | "unsupported"
        | "taken_back"
      >(),
    ),
    text: optional(text),
  }),
  state: shape({
    phase: word<"starting" | "idle" | "working" | "waiting" | "parked" | "ended">(),
    agent: text,
    mode,
    model: optional(text),
    modes: listOrNone(choice),
    models: listOrNone(choice),
    commands: listOrNone(shape({ name: text, description: text, hint: optional(text) })),
    steers: flag,
    directory: text,
    branch: optional(text),
    providerSessionId: optional(text),
    context: optional(shape({ used: whole, size: whole })),
    costUsd: optional(number),
    stillRunning: listOrNone(text),
    queue: listOrNone(text),
    access: listOrNone(access),
    keyEpoch: whole,
    does: listOrNone(text),
  }),
  error: shape({
    code: word<"login" | "quota" | "overloaded" | "context" | "crashed" | "unknown">(),
    text,
    retryAt: optional(time),
  }),
};

type Contents = { [K in keyof typeof contents]: Read<(typeof contents)[K]> };
export type Prompt = Contents["prompt"];
export type Attachment = Read<typeof attachment>;
export type Turn = Contents["turn"];
export type TextPart = Contents["text"];
export type ToolCall = Contents["tool_call"];
export type ToolContent = Read<typeof toolContent>;
export type Plan = Contents["plan"];
export type Permission = Contents["permission"];
export type Question = Contents["question"];
export type Answer = Contents["answer"];
export type Resolved = Contents["resolved"];
export type Receipt = Contents["receipt"];
export type State = Contents["state"];
export type Failure = Contents["error"];
export type AccessGrant = Read<typeof access>;
export type Mode = Read<typeof mode>;
export type May = Read<typeof may>;

/** A command that is no prompt and no answer. An action that this version does not know is `newer`. */
export type Control =
  | { action: "interrupt" | "stop" }
  | { action: "resume"; value?: { directory?: string | undefined } }
  | { action: "set_mode"; value: { mode: Mode; seen: Mode } }
  | { action: "set_model"; value: { model: string } }
  | { action: "access"; value: AccessGrant }
  /** A prompt that waits: its `localId` and the key that has signed it. */
  | { action: "take_back"; value: { localId: string; key: string } }
  | { action: "newer"; name: string };

function readControl(value: unknown, at: string): Control {
  const given = object(value, at);
  const action = text(given["action"], `${at}/action`);
  const inside = `${at}/value`;
  switch (action) {
    case "interrupt":
    case "stop":
      return { action };
    case "resume":
      return (given["value"] ?? undefined) === undefined
        ? { action }
        : { action, value: shape({ directory: optional(text) })(given["value"], inside) };
    case "set_mode":
      return { action, value: shape({ mode, seen: mode })(given["value"], inside) };
    case "set_model":
      return { action, value: shape({ model: text })(given["value"], inside) };
    case "access":
      return { action, value: access(given["value"], inside) };
    case "take_back":
      return { action, value: shape({ localId: text, key: text })(given["value"], inside) };
    default:
      return { action: "newer", name: action };
  }
}

/** What a message says. A type or a version that this code does not know is `newer`. */
export type Content = { [K in keyof Contents]: { type: K } & Contents[K] }[keyof Contents] | { type: "newer"; name: string };
/** What a person's client sends. */
export type Command = Extract<Content, { type: "prompt" | "answer" | "control" }>;

const knownList = shape({ version: whole, digest: text });
/** Which device list of the owner a signer knew. */
export type KnownList = Read<typeof knownList>;

const head = shape({ v: whole, type: text, localId: text, at: time, list: knownList, n: optional(whole) });

/** One message of a transcript, opened and read. */
export interface Message {
  /** The id that its writer gave it. The sealed message is sent with the same id. */
  localId: string;
  /** By the signer's clock. */
  at: string;
  list: KnownList;
  /** The host's own count, from 1 without gaps. */
  n: number | undefined;
  content: Content;
}

/** A body that cannot be read, and why. */
export interface Unreadable {
  unreadable: string;
}

/** Reads a body. Members that are not known are left out. */
export function readBody(body: string): Message | Unreadable {
  const size = body.length * 3 <= MOST_BODY ? body.length : utf8Length(body);
  if (size > MOST_BODY) return { unreadable: `the message has ${size} bytes; at most ${MOST_BODY} are read` };
  try {
    const value: unknown = JSON.parse(body);
    const { v, type, localId, at, list, n } = head(value, "");
    const length = utf8Length(localId);
    if (length === 0 || length > MOST_ID) throw new BadShape(`localId has not 1 to ${MOST_ID} bytes`);
    const read = v === 1 && Object.hasOwn(contents, type) ? contents[type as keyof Contents] : undefined;
    const content = read ? ({ type, ...read(value, "") } as Content) : ({ type: "newer", name: type } as const);
    return { localId, at, list, n, content };
  } catch (error) {
    const why = error instanceof BadShape ? error.message : "it is no JSON";
    return { unreadable: `the message does not have the form of one: ${why}` };
  }
}

/** The body of a command as text. The signature is over its bytes, so it is written once and kept. */
export function writeCommand(command: Command, head: { localId: string; at: string; list: KnownList }): string {
  const { type, ...fields } = command;
  return JSON.stringify({ v: 1, type, localId: head.localId, at: head.at, list: head.list, ...compact(fields) });
}

/** Without empty lists and undefined members, as hosts write them. */
function compact(fields: Record<string, unknown>): Record<string, unknown> {
  const isThere = ([, value]: [string, unknown]): boolean =>
    value !== undefined && !(Array.isArray(value) && value.length === 0);
  return Object.fromEntries(Object.entries(fields).filter(isThere));
}

/** Who writes messages of a type. A message by any other author is shown as a note and never obeyed. */
export function writerOf(content: Content): "host" | "client" | "unknown" {
  switch (content.type) {
    case "prompt":
    case "answer":
    case "control":
      return "client";
    case "newer":
      return "unknown";
    default:
      return "host";
  }
}
