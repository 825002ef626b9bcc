/** The end of a session as this browser has last shown it, for times without a connection. */
import type { FeedView } from "./feed.ts";
import { keep, recall } from "./kept.ts";

/** How much of the end of a transcript is kept. */
const MOST_ITEMS = 150;
const MOST_CHARACTERS = 600_000;

type Kept = Pick<FeedView, "row" | "state" | "items" | "plan" | "isHosted" | "may">;

const nameOf = (id: string): string => `view ${id}`;

export function keepView(id: string, { row, state, items, plan, isHosted, may }: FeedView): Promise<void> {
  const last = [];
  let left = MOST_CHARACTERS;
  for (const item of items.slice(-MOST_ITEMS).toReversed()) {
    left -= JSON.stringify(item).length;
    if (left < 0) break;
    last.push(item);
  }
  const kept: Kept = { row, state, items: last.reverse(), plan, isHosted, may };
  return keep("seen", nameOf(id), kept);
}

/** Requests are left out: a person who answers must see the present ones. */
export async function keptView(id: string): Promise<(Kept & Pick<FeedView, "isOpen" | "keptAt">) | undefined> {
  const found = await recall<Kept>(nameOf(id));
  return found && { ...found.value, isOpen: true, keptAt: found.at };
}
