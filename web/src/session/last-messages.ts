/** The last messages as a draft, for an agent that has lost the conversation. */
import { visible } from "../text/visible.ts";
import type { Item } from "./types.ts";

/** The characters of the draft, beyond which the oldest messages are left out, and of one message. */
const MOST = 8_192;
const MOST_OF_ONE = 2_048;

/** Whether the agent has said that it lost the conversation, and no prompt came since. */
export function hasLost(items: readonly Item[]): boolean {
  const last = items.findLast(
    ({ shown }) => shown.type === "prompt" || (shown.type === "error" && shown.failure.code === "context"),
  );
  return last?.shown.type === "error";
}

/** What people and the agent have said last, quoted. */
export function lastMessages(items: readonly Item[]): string {
  const said: string[] = [];
  let size = 0;
  for (const { shown } of [...items].reverse()) {
    const found =
      shown.type === "prompt"
        ? { who: "A person", text: shown.prompt.text }
        : shown.type === "text" && shown.part.parentToolCallId === undefined
          ? { who: "You", text: shown.part.text }
          : undefined;
    if (!found) continue;
    const quoted = visible(found.text.trim().slice(-MOST_OF_ONE))
      .split("\n")
      .map((line) => `> ${line}\n`)
      .join("");
    size += quoted.length;
    if (size > MOST) break;
    said.unshift(`${found.who}:\n${quoted}`);
  }
  return said.length === 0 ? "" : `This is what was said last, before you lost the conversation:\n\n${said.join("\n")}\n`;
}
