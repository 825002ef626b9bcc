/** What a public link cannot open: messages that are sealed with a newer key of the session. */
import type { Item } from "../session/types.ts";

/** As the client library says it for each of them. */
const LATER = /^It was sealed with key \d+, which you do not have\.$/;

/** Leaves them out, so that the page says it once. */
export function withoutLater(items: readonly Item[]): { items: readonly Item[]; hasLater: boolean } {
  const opened = items.filter(({ shown }) => !(shown.type === "note" && "why" in shown.note && LATER.test(shown.note.why)));
  return { items: opened, hasLater: opened.length < items.length };
}
