import { useEffect, useMemo } from "react";
import type { SessionFeed } from "./feed.ts";
import { LiveFeed } from "./live-feed.ts";

/** So many sessions stay opened after they were looked at, so that going back to one shows it at once. */
const MOST = 8;
const feeds = new Map<string, LiveFeed>();

function feedOf(id: string): LiveFeed {
  const feed = feeds.get(id) ?? new LiveFeed(id);
  feeds.delete(id);
  feeds.set(id, feed);
  for (const oldest of feeds.keys()) {
    if (feeds.size <= MOST) break;
    feeds.delete(oldest);
  }
  return feed;
}

/** The session, followed for as long as a screen shows it. */
export function useFeed(id: string): SessionFeed {
  const feed = useMemo(() => feedOf(id), [id]);
  useEffect(() => feed.watch(), [feed]);
  return feed;
}
