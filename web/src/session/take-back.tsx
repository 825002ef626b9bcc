/** What can be done with a prompt that waits: take it back, or take it back and write it again. */
import { useState } from "react";
import { textOf } from "../data/failure.ts";
import type { SessionFeed } from "../data/feed.ts";
import type { Prompt } from "./types.ts";

interface Props {
    feed: SessionFeed;
    /** Its item in the transcript. */
    id: number;
    named: { localId: string; key: string };
    /** The machine has said that the prompt is not done. */
    onEdit: (prompt: Prompt) => void;
}

/** Waits until the machine has said what became of the prompt, or has refused to take it back. */
function settled(feed: SessionFeed, id: number, control: string, then: (takenBack: Prompt | undefined) => void): () => void {
    const look = () => {
        const { items } = feed.view.get();
        const shown = items.find((item) => item.id === id)?.shown;
        const asked = items.find((item) => item.localId === control && item.shown.type === "control")?.shown;
        const isRefused = asked?.type === "control" && asked.taken.is === "rejected";
        const waits = shown?.type === "prompt" && (shown.taken.is === "queued" || shown.taken.is === "not_yet");
        if (waits && !isRefused) return;
        stop();
        const isBack = shown?.type === "prompt" && shown.taken.is === "rejected" && shown.taken.code === "taken_back";
        then(isBack ? shown.prompt : undefined);
    };
    const stop = feed.view.subscribe(look);
    return stop;
}

export default function TakeBack({ feed, id, named, onEdit }: Props) {
    const [isSent, setSent] = useState(false);
    const [error, setError] = useState<string>();
    const take = (isEdit: boolean) => {
        const control = crypto.randomUUID();
        setSent(true);
        setError(undefined);
        const stop = settled(feed, id, control, (prompt) => {
            setSent(false);
            if (prompt && isEdit) onEdit(prompt);
        });
        feed.takeBack?.(named, control).catch((caught: unknown) => {
            stop();
            setSent(false);
            setError(textOf(caught));
        });
    };
    return (
        <div className="byline waiting">
            {isSent ? (
                <span role="status">Taking it back…</span>
            ) : (
                <>
                    <button type="button" className="button small plain" onClick={() => take(false)}>
                        Take back
                    </button>
                    <button type="button" className="button small plain" onClick={() => take(true)}>
                        Edit
                    </button>
                </>
            )}
            {error !== undefined && <span className="rejected">{error}</span>}
        </div>
    );
}
