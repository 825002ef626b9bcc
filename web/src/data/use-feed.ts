import { useEffect, useMemo, useState } from "react";
import { useStore } from "../base/store.ts";
import { mine } from "./account.ts";
import { keepTrying } from "./keep-trying.ts";
import { markSeen } from "./session-actions.ts";
import type { SessionFeed } from "./feed.ts";
import { LiveFeed } from "./live-feed.ts";
import { sessions } from "./sessions.ts";
import { TalkFeed } from "./talk-feed.ts";

/** Sessions that stay open after they were shown, so that going back to one shows it at once. */
const MOST = 8;
type Watched = SessionFeed & { watch(): () => void };
const feeds = new Map<string, Watched>();

function feedOf(id: string, isHosted: boolean): Watched {
  const name = `${isHosted ? "live" : "talk"} ${id}`;
  const feed = feeds.get(name) ?? (isHosted ? new LiveFeed(id) : new TalkFeed(id));
  feeds.delete(name);
  feeds.set(name, feed);
  for (const oldest of feeds.keys()) {
    if (feeds.size <= MOST) break;
    feeds.delete(oldest);
  }
  return feed;
}

/** The session, followed for as long as a screen shows it. */
export function useFeed(id: string): SessionFeed {
  const isHosted = useHosted(id);
  const feed = useMemo(() => feedOf(id, isHosted), [id, isHosted]);
  useEffect(() => feed.watch(), [feed]);
  return feed;
}

/** Marks what has finished or failed as seen, while its owner looks at it. */
export function useMarkSeen(id: string): void {
  const row = useStore(sessions).rows.find((one) => one.id === id);
  const isOver = row?.accessLevel === "owner" && (row.attention === "finished" || row.attention === "failed");
  const attention = isOver ? row.attentionId : undefined;
  useEffect(() => {
    if (attention === undefined) return;
    const stop = new AbortController();
    const look = (): void => {
      // A server that is busy or offline must not leave it unseen until something else happens.
      if (!document.hidden)
        void keepTrying(
          () => markSeen(id),
          () => undefined,
          stop.signal,
        );
    };
    look();
    document.addEventListener("visibilitychange", look, { signal: stop.signal });
    return () => stop.abort();
  }, [id, attention]);
}

/** Whether a machine hosts the session. Most are hosted, so one that is not known yet is taken for one. */
function useHosted(id: string): boolean {
  const listed = useStore(sessions).rows.find((row) => row.id === id)?.hosted;
  const [read, setRead] = useState<boolean>();
  useEffect(() => {
    if (listed === undefined)
      mine()
        .sessions.read(id)
        .then(
          ({ hosted }) => setRead(hosted === true),
          () => undefined,
        );
  }, [id, listed]);
  return listed ?? read ?? true;
}
