/** What a task has changed in its worktree, what happens to it, and later messages to its agent. */
import { newId } from "@ensemble/client";
import { type FormEvent, useState } from "react";
import { useAttempt } from "../base/attempt.ts";
import type { RunFeed, Task, TaskChanges } from "../data/runs.ts";
import { HasChanged, hasWholeDiff, hasWholeList } from "../data/shown-changes.ts";
import { Code } from "../text/code.tsx";
import { visible } from "../text/visible.ts";

const STATES: Record<TaskChanges["state"], string> = {
    none: "in its directory",
    kept: "kept in a worktree",
    applying: "being applied",
    applied: "applied",
    conflicted: "kept in a worktree: they could not be applied",
    discarding: "being discarded",
    discarded: "discarded",
    lost: "lost with their machine",
};

/** Whether its machine still has the worktree. */
export const hasWorktree = ({ changes }: Task): boolean =>
    changes != null && ["kept", "conflicted", "applied", "discarding"].includes(changes.state);

const isKept = ({ state }: TaskChanges): boolean => state === "kept" || state === "conflicted";

/** Whether it changed something that was not applied. */
export const isOpen = ({ changes }: Task): boolean =>
    changes != null &&
    isKept(changes) &&
    (changes.fileCount > 0 || changes.unknown === true || (changes.notes?.length ?? 0) > 0);

/** Whether its machine has not carried out the last order, for a reason other than its files. */
const wasRefused = ({ failure, conflicted }: TaskChanges): boolean => failure != null && conflicted.length === 0;

function counted({ fileCount, added, removed, state, unknown, wasApplied }: TaskChanges): string {
    const place = state === "discarded" && wasApplied ? "applied; the worktree is removed" : STATES[state];
    if (unknown) return `It is not known what it changed, ${place}.`;
    return `${fileCount === 1 ? "1 file" : `${fileCount.toLocaleString()} files`}, +${added.toLocaleString()} −${removed.toLocaleString()}, ${place}.`;
}

export function Worktree({ feed, task, changes }: { feed: RunFeed; task: Task; changes: TaskChanges }) {
    const [isBusy, setBusy] = useState(false);
    const [asks, setAsks] = useState<"apply" | "discard">();
    const [diff, setDiff] = useState<string>();
    const { error, said, setSaid, run } = useAttempt(setBusy);
    const order = (action: "apply" | "discard", unseen = false) =>
        run(async () => {
            setAsks(undefined);
            let after: TaskChanges;
            try {
                after = await feed.order(task, action, unseen);
            } catch (caught) {
                // The screen shows an older state.
                if (caught instanceof HasChanged) setDiff(undefined);
                throw caught;
            }
            if (wasRefused(after)) setDiff(undefined);
            const { state, waitingFor } = after;
            if (state !== "applying" && state !== "discarding") return;
            setSaid(
                waitingFor === "machine"
                    ? "Its machine is offline. It does this if it is back within 24 hours."
                    : "Its machine has not ended yet.",
            );
        });
    const shown = () => run(async () => setDiff(diff === undefined ? await feed.diff(task) : undefined));
    // It was applied before, and the task has continued since.
    const canApply = isOpen(task) || (isKept(changes) && changes.wasApplied === true);
    const wasShown = hasWholeDiff(changes) && (diff !== undefined || (hasWholeList(changes) && !wasRefused(changes)));
    const asksFirst = isOpen(task) || wasRefused(changes);
    return (
        <section aria-label="Changes">
            <h2>Changes</h2>
            <p>{counted(changes)}</p>
            {hasWorktree(task) && changes.files.length > 0 && (
                <ul className="soft" aria-label="Changed files">
                    {changes.files.map(({ path, kind, added, removed }) => (
                        <li key={path}>
                            <bdi>{visible(path)}</bdi> {kind}
                            {added == null ? "" : `, +${added.toLocaleString()}`}
                            {removed == null ? "" : ` −${removed.toLocaleString()}`}
                        </li>
                    ))}
                </ul>
            )}
            {changes.notes?.map((note) => (
                <p key={note} className="soft">
                    {visible(note)}
                </p>
            ))}
            {changes.conflicted.length > 0 && (
                <p className="error-text">
                    Not applied, and nothing was changed, because of: <bdi>{visible(changes.conflicted.join(", "))}</bdi>
                </p>
            )}
            {changes.failure != null && <p className="error-text">{visible(changes.failure)}</p>}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            {said !== undefined && (
                <p className="soft" role="status">
                    {said}
                </p>
            )}
            <div className="row">
                {changes.fileCount > 0 && (
                    <button
                        type="button"
                        className="button small"
                        aria-expanded={diff !== undefined}
                        disabled={isBusy}
                        onClick={shown}
                    >
                        {diff === undefined ? "Show changes" : "Hide changes"}
                    </button>
                )}
                {canApply && (
                    <button
                        type="button"
                        className="button small"
                        disabled={isBusy}
                        onClick={() => (wasShown ? order("apply") : setAsks("apply"))}
                    >
                        {wasShown ? "Apply" : "Apply…"}
                    </button>
                )}
                {hasWorktree(task) && !asks && (
                    <button
                        type="button"
                        className="button small danger"
                        disabled={isBusy}
                        onClick={() => (asksFirst ? setAsks("discard") : order("discard"))}
                    >
                        {asksFirst ? "Discard…" : "Remove worktree"}
                    </button>
                )}
            </div>
            {asks !== undefined && (
                <div className="empty">
                    <p>
                        {asks === "discard"
                            ? "Discard what this task changed, also what you have not seen? This cannot be undone."
                            : "A part of what this task changed was not shown, or has changed since. Apply it with what you have not seen?"}
                    </p>
                    <div className="row">
                        <button type="button" className="button danger" disabled={isBusy} onClick={() => order(asks, true)}>
                            {asks === "discard" ? "Discard" : "Apply unseen"}
                        </button>
                        <button type="button" className="button" disabled={isBusy} onClick={() => setAsks(undefined)}>
                            Cancel
                        </button>
                    </div>
                </div>
            )}
            {diff !== undefined && <Code text={diff} language="diff" />}
            {diff !== undefined && changes.diffTruncated && (
                <p className="soft">
                    This is not complete: it was too long, the account’s quota was reached, or its machine could not send it.
                </p>
            )}
        </section>
    );
}

/** The field for messages to the agent of a task that has ended. */
export function MoreToSay({ feed, task, onContinue }: { feed: RunFeed; task: Task; onContinue: () => void }) {
    const [text, setText] = useState("");
    const [messageId, setMessageId] = useState(newId);
    const [isBusy, setBusy] = useState(false);
    const { error, run } = useAttempt(setBusy);
    const isGone = task.changes?.state === "discarded" || task.changes?.state === "lost";
    if ((task.status !== "completed" && task.status !== "failed") || task.attempt === 0 || isGone) return null;
    const sent = (event: FormEvent) => {
        event.preventDefault();
        run(async () => {
            await feed.say(task, text.trim(), messageId);
            setText("");
            setMessageId(newId());
            onContinue();
        });
    };
    const name = `say-${task.id}`;
    return (
        <form onSubmit={sent}>
            <div className="field">
                <label htmlFor={name}>Send its agent another message</label>
                <textarea
                    id={name}
                    className="input"
                    rows={2}
                    value={text}
                    onChange={(event) => {
                        setText(event.target.value);
                        // Another text is another message.
                        setMessageId(newId());
                    }}
                />
            </div>
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            <div className="row">
                <button type="submit" className="button small" disabled={isBusy || text.trim() === ""}>
                    Say
                </button>
            </div>
        </form>
    );
}
