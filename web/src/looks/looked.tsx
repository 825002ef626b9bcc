/** What a tab shows of the machine of a session, or why it shows nothing. */
import { useEffect, useRef, useState } from "react";
import { useStore } from "../base/store.ts";
import type { SessionFeed } from "../data/feed.ts";
import type { Looks } from "../data/looks.ts";
import { Changed } from "./changed.tsx";
import { Files } from "./files.tsx";
import { useKeptFocus } from "./use-kept-focus.ts";
import { oneLine } from "../text/visible.ts";
import { awayWords, lookWords, NO_CONNECTION, NOT_FOR_GUESTS, type Tab } from "./words.ts";

export default function Looked({ feed, tab }: { feed: SessionFeed; tab: Tab }) {
    const { row, state, may, keptAt } = useStore(feed.view);
    const [looks, setLooks] = useState<Looks>();
    const [error, setError] = useState<string>();
    useEffect(() => {
        feed.looks?.().then(
            (found) => setLooks(() => found),
            (caught: unknown) => setError(lookWords(caught)),
        );
    }, [feed]);
    const root = useRef<HTMLDivElement>(null);
    useKeptFocus(root);
    const why = !may.approve
        ? NOT_FOR_GUESTS
        : keptAt !== undefined
          ? NO_CONNECTION
          : row?.online === false
            ? awayWords(row.host === undefined ? undefined : oneLine(row.host, 60), row.lastActiveAt)
            : error;
    const mayWrite = may.prompt && state !== undefined && state.phase !== "ended";
    return (
        <div ref={root} className="looked" tabIndex={-1}>
            <div className="inner">
                {why !== undefined ? (
                    <p className="empty" role="status">
                        {why}
                    </p>
                ) : (
                    looks &&
                    state && (
                        // What the agent has done meanwhile is read when it rests.
                        <Shown key={tab} tab={tab} looks={looks} isWorking={state.phase === "working"} mayWrite={mayWrite} />
                    )
                )}
            </div>
        </div>
    );
}

export interface ShownProps {
    looks: Looks;
    isWorking: boolean;
    /** The composer is there. */
    mayWrite: boolean;
}

function Shown({ tab, ...props }: ShownProps & { tab: Tab }) {
    return tab === "changes" ? <Changed {...props} /> : <Files {...props} />;
}
