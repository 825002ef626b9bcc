/** What the owner of a session reads about its public link. */
import { clock } from "../base/words.ts";
import type { LinkRow } from "../data/shares.ts";

/** Of a session that has got a new key, as when a person was removed. */
const OLD = "It does not show what is written from now on. Make a new link.";

export function aboutLink({ uses, maxUses, expiresAt, isOld }: LinkRow): string {
  const opened =
    maxUses === undefined
      ? `opened ${uses === 1 ? "once" : `${uses} times`}`
      : `opened ${uses} of ${maxUses === 1 ? "1 time" : `${maxUses} times`}`;
  const stands = `There is a link: ${opened}, ${expiresAt === undefined ? "with no end date" : `until ${clock(expiresAt)}`}.`;
  return isOld ? `${stands} ${OLD}` : stands;
}
