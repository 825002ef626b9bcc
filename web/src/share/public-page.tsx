/** The session behind a public link: to read, live, without an account. */
import { useEffect, useMemo } from "react";
import { server } from "../base/server.ts";
import { PublicFeed } from "../data/public-feed.ts";
import { Session } from "../session/page.tsx";
import { Connection } from "../shell/connection.tsx";

export function PublicPage({ token }: { token: string }) {
  const feed = useMemo(() => new PublicFeed(token, `${server()}${location.pathname}${location.hash}`), [token]);
  useEffect(() => feed.watch(), [feed]);
  return (
    <main className="main public" id="main">
      <Connection />
      <p className="offline plain">A shared session, to read. Who has made it is not checked here: trust it as you trust who sent you the link.</p>
      <Session feed={feed} isPublic />
    </main>
  );
}
