/** The session behind a public link, live and read-only, without an account. */
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
            <p className="offline plain">
                This is a shared session that you can read. The page cannot check who made it: trust it as much as you trust the
                person who sent you the link.
            </p>
            <Session feed={feed} isPublic />
        </main>
    );
}
