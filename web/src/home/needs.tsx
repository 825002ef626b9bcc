/** Open requests, answered in place. */
import { Link } from "wouter";
import { useStore } from "../base/store.ts";
import type { SessionRow } from "../data/row.ts";
import { useFeed } from "../data/use-feed.ts";
import { Directory } from "../session/paths.ts";
import { Requests } from "../session/requests.tsx";
import { Dot } from "../shell/dot.tsx";
import { paths } from "../shell/route.ts";
import { oneLine } from "../text/visible.ts";

/** Sessions that are opened at once; the others are listed. Each holds a stream while it is on the screen. */
const MOST_OPENED = 3;

export function NeedsMe({ rows }: { rows: readonly SessionRow[] }) {
    return (
        <div className="needs">
            {rows.slice(0, MOST_OPENED).map((row) => (
                <Need key={row.id} row={row} />
            ))}
            {rows.length > MOST_OPENED && <p className="reader-note">{rows.length - MOST_OPENED} more below.</p>}
        </div>
    );
}

function Need({ row }: { row: SessionRow }) {
    const feed = useFeed(row.id);
    const { isOpen, open, error, state } = useStore(feed.view);
    return (
        <article>
            <p className="from">
                <Dot row={row} />
                <Link href={paths.session(row.id)}>
                    <bdi>{oneLine(row.title, 120)}</bdi>
                </Link>
                {row.host && (
                    <span>
                        <bdi>{oneLine(row.host, 40)}</bdi>
                    </span>
                )}
            </p>
            {error !== undefined && <p className="banner bad">{error}</p>}
            {error === undefined && !isOpen && (
                <div className="list">
                    <div className="skeleton" />
                </div>
            )}
            {isOpen && open.length === 0 && <p className="reader-note">Open the session to see its request.</p>}
            <Directory value={state?.directory}>
                <Requests feed={feed} isAlone={false} isEmpty />
            </Directory>
        </article>
    );
}
