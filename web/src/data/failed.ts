/** What the screen of a session shows when the session can no longer be followed. */
import { isProblem } from "@ensemble/client";
import { textOf } from "./failure.ts";
import type { FeedView } from "./feed.ts";
import { mayHeal } from "./keep-trying.ts";

type Failed = Pick<FeedView, "error" | "isGone">;

/** Undefined if it may heal: the line over the page says that there is no connection, and what was read stays. */
export function failedOf(error: unknown, { isOpen, row, may }: FeedView): Failed | undefined {
  if (mayHeal(error) && isOpen) return undefined;
  if (!isProblem(error, "NOT_FOUND")) return { error: textOf(error) };
  if (!isOpen || !row) return { error: "There is no session at this address, or it is not shared with you." };
  return { error: may.own ? "This session was deleted." : "You no longer have access to this session.", isGone: true };
}
