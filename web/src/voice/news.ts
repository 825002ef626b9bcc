/**
 * What the voice announces about the session: that its agent asks, is ready, or has ended. The words are fixed: a title would be
 * text of others, and some models can only be asked to speak.
 */
import type { FeedView } from "../data/feed.ts";

const AT_WORK = new Set(["starting", "working", "waiting"]);

/** What is new for a person who does not look at the screen. */
export function news(before: FeedView, now: FeedView): string | undefined {
  if (!before.isOpen || !now.isOpen) return undefined;
  const known = new Set(before.open.map(({ requestId }) => requestId));
  const asks = now.open.filter(({ requestId }) => !known.has(requestId));
  if (asks.length > 0) {
    const what = asks.some(({ asks: { type } }) => type === "permission") ? "asks for a permission" : "has a question";
    return `The coding agent ${what}. It is on your screen.`;
  }
  if (!before.state || !AT_WORK.has(before.state.phase)) return undefined;
  if (now.state?.phase === "idle") return "The coding agent has ended its turn.";
  return now.state?.phase === "ended" ? "The coding agent has ended." : undefined;
}
