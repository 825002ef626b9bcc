/** What the voice gets of a session: its newest messages, small enough for one answer. */
import type { FeedView } from "../data/feed.ts";
import type { Item } from "../session/types.ts";

const MOST_MESSAGE_BYTES = 2_048;
/** Of the 15,360 that an answer has. */
const MOST_ANSWER_BYTES = 15_000;
const MOST_OPEN = 8;
const MOST_TITLE = 200;

export interface Message {
  from: "person" | "agent" | "tool" | "error";
  text: string;
}

export interface Reading {
  sessionId: string;
  phase: string;
  messages: Message[];
  open: { requestId: string; kind: "permission" | "question"; title: string }[];
  /** Something is left out. */
  cut: boolean;
}

const encoder = new TextEncoder();
export const inBytes = (text: string): number => encoder.encode(text).length;

/** The newest `last` messages that say something, oldest first. */
export function read(sessionId: string, view: FeedView, last: number): Reading {
  const messages: Message[] = [];
  let cut = false;
  for (let at = view.items.length - 1; at >= 0 && messages.length < last; at--) {
    const found = messageOf(view.items[at] as Item);
    if (!found) continue;
    const text = shortened(found.text, MOST_MESSAGE_BYTES);
    cut ||= text !== found.text;
    messages.unshift({ ...found, text });
  }
  const open = view.open.slice(0, MOST_OPEN).map(({ requestId, asks }) => {
    const title = asks.type === "permission" ? asks.title : (asks.questions[0]?.text ?? "");
    return { requestId, kind: asks.type, title: shortened(title, MOST_TITLE) };
  });
  const reading: Reading = {
    sessionId,
    phase: view.state?.phase ?? "unknown",
    messages,
    open,
    cut: cut || view.open.length > MOST_OPEN,
  };
  while (reading.messages.length > 0 && inBytes(JSON.stringify(reading)) > MOST_ANSWER_BYTES) {
    reading.messages.shift();
    reading.cut = true;
  }
  return reading;
}

function messageOf({ shown }: Item): Message | undefined {
  switch (shown.type) {
    case "prompt":
      return { from: "person", text: shown.prompt.text };
    case "text":
      return shown.part.text.trim() === "" ? undefined : { from: "agent", text: shown.part.text };
    case "tool":
      return { from: "tool", text: `${shown.call.title ?? ""} (${shown.call.status ?? "under way"})` };
    case "error":
      return { from: "error", text: shown.failure.text };
    default:
      return undefined;
  }
}

/** At most `most` bytes of it, whole characters only. */
function shortened(text: string, most: number): string {
  if (inBytes(text) <= most) return text;
  const bytes = new Uint8Array(most - 3);
  const { read: taken } = encoder.encodeInto(text, bytes);
  return `${text.slice(0, taken)}…`;
}
