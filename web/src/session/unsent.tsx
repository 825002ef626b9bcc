/** Prompts that may not have come through, over the field to write in. */
import { useEffect, useState } from "react";
import { useStore } from "../base/store.ts";
import { textOf } from "../data/failure.ts";
import type { SessionFeed } from "../data/feed.ts";
import { dropUnsent, keepUnsent, recallUnsent, type Unsent as One, unsent } from "../data/unsent.ts";
import { oneLine, visible } from "../text/visible.ts";

/** How long a prompt is retried before a person is asked, in milliseconds. */
const TRIED_MS = 60_000;
/** A prompt that takes longer is shown as on its way. */
const QUIET_MS = 2_000;

/** Sends a prompt, for a minute. What fails is kept with its id. */
export function sendPrompt(feed: SessionFeed, one: Omit<One, "error" | "since">, since = Date.now()): void {
    const sent: One = { ...one, since, error: undefined };
    keepUnsent(feed.id, sent);
    const failed = (text: string) => keepUnsent(feed.id, { ...sent, error: text });
    const timer = setTimeout(
        () => failed("The server has not answered. The machine may have received it all the same."),
        Math.max(0, since + TRIED_MS - Date.now()),
    );
    feed.prompt(one.text, one.when, one.localId, one.attachments)
        .then(
            () => dropUnsent(feed.id, one.localId),
            (caught: unknown) => failed(textOf(caught)),
        )
        .finally(() => clearTimeout(timer));
}

/** Resumes what a page that was closed has begun to send. */
async function resume(feed: SessionFeed): Promise<void> {
    for (const one of await recallUnsent(feed.id)) {
        if (one.error === undefined && Date.now() - one.since < TRIED_MS) sendPrompt(feed, one, one.since);
        else keepUnsent(feed.id, { ...one, error: one.error ?? "The page was closed before the server had answered." });
    }
}

export function Unsent({ feed, onEdit }: { feed: SessionFeed; onEdit: (one: One) => void }) {
    const all = useStore(unsent).get(feed.id);
    const { items } = useStore(feed.view);
    useEffect(() => {
        // It has arrived after all.
        for (const { localId } of all ?? [])
            if (items.some((item) => item.localId === localId && item.shown.type === "prompt")) dropUnsent(feed.id, localId);
    }, [all, items, feed.id]);
    const [now, setNow] = useState(() => Date.now());
    useEffect(() => {
        void resume(feed);
    }, [feed]);
    const next = Math.min(...(all ?? []).map(({ since }) => since + QUIET_MS).filter((at) => at > now));
    useEffect(() => {
        if (next === Infinity) return undefined;
        // A prompt that has been on its way for a while is shown.
        const timer = setTimeout(() => setNow(Date.now()), Math.max(0, next - Date.now()) + 50);
        return () => clearTimeout(timer);
    }, [next]);
    const shown = (all ?? []).filter(({ error, since }) => error !== undefined || now - since >= QUIET_MS);
    return shown.map((one) =>
        one.error === undefined ? (
            <p key={one.localId} className="banner" role="status">
                <bdi>{oneLine(one.text, 120)}</bdi> Being sent…
            </p>
        ) : (
            <div key={one.localId} className="banner bad unsent" role="alert">
                <p>
                    <bdi>{oneLine(one.text, 200)}</bdi>
                </p>
                <p>Not sent: {visible(one.error)}</p>
                <div className="actions">
                    <button type="button" className="button small" onClick={() => sendPrompt(feed, one)}>
                        Send again
                    </button>
                    <button
                        type="button"
                        className="button small plain"
                        onClick={() => {
                            dropUnsent(feed.id, one.localId);
                            onEdit(one);
                        }}
                    >
                        Edit
                    </button>
                </div>
            </div>
        ),
    );
}
