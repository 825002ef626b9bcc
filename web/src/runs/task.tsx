/** What a task was asked, what it has said, and why it has failed. */
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { textOf } from "../data/failure.ts";
import { keepTrying } from "../data/keep-trying.ts";
import { doubt, followOutput, isNotSigned, type RunFeed, type Task } from "../data/runs.ts";
import { whileSeen } from "../data/seen.ts";
import { paths } from "../shell/route.ts";
import { Long } from "../text/long.tsx";
import { Markdown } from "../text/markdown.tsx";
import { Terminal } from "../text/terminal.tsx";
import { visible } from "../text/visible.ts";
import { MoreToSay, Worktree } from "./worktree.tsx";

interface Props {
    feed: RunFeed;
    task: Task;
    /** The server was reached, so the task can be changed. */
    canAct: boolean;
    /** Called when the task continues. */
    onContinue: () => void;
}

export function TaskPanel({ feed, task, canAct, onContinue }: Props) {
    const run = feed.id;
    const hasOutput = task.session === null || task.session === undefined;
    return (
        <div className="task-panel">
            {isNotSigned(task) && (
                <p className="error-text">
                    This task is {doubt(task)}: what it is about is not shown, and nothing can be ordered about it.
                </p>
            )}
            {task.error && (
                <div className="failure">
                    <strong>{visible(task.error.code)}</strong>
                    <span>{visible(task.error.message)}</span>
                </div>
            )}
            {task.sessionId && (
                <div>
                    <Link href={paths.session(task.sessionId)} className="button small">
                        Open its session
                    </Link>
                </div>
            )}
            {task.prompt && (
                <section aria-label="Prompt">
                    <h2>Prompt</h2>
                    <Long className="plain" text={visible(task.prompt)} label="Prompt" />
                </section>
            )}
            {task.outputSummary && task.outputSummary.trim() !== task.error?.message.trim() && (
                <section aria-label="Result">
                    <h2>Result</h2>
                    <Markdown text={task.outputSummary} />
                </section>
            )}
            {hasOutput && task.attempt > 0 && (
                <Output
                    key={`${task.id} ${task.attempt}`}
                    run={run}
                    task={task.id}
                    isOver={OVER.has(task.status)}
                    said={task.error?.message}
                />
            )}
            {canAct && doubt(task) === undefined && task.changes && task.changes.state !== "none" && (
                <Worktree feed={feed} task={task} changes={task.changes} />
            )}
            {canAct && doubt(task) === undefined && hasOutput && <MoreToSay feed={feed} task={task} onContinue={onContinue} />}
            {!hasOutput && doubt(task) !== undefined && <p className="soft">Its title is {doubt(task)}.</p>}
            {!hasOutput && !task.sessionId && (
                <p className="soft">
                    This task is encrypted for its machine. When it starts, you can follow it in its session.
                </p>
            )}
        </div>
    );
}

const OVER = new Set<Task["status"]>(["completed", "failed", "cancelled"]);

interface OutputProps {
    run: string;
    task: string;
    isOver: boolean;
    /** The text above it says this already. */
    said: string | undefined;
}

function Output({ run, task, isOver, said }: OutputProps) {
    const [text, setText] = useState<string>();
    const [error, setError] = useState<string>();
    useEffect(() => {
        const stop = new AbortController();
        const read = async (seen: AbortSignal): Promise<void> => {
            await followOutput(
                run,
                task,
                (all) => {
                    setError(undefined);
                    setText(all);
                },
                seen,
            );
            if (!seen.aborted) setText((before) => before ?? "");
        };
        void whileSeen(
            (seen) =>
                keepTrying(
                    () => read(seen),
                    (caught) => setError(textOf(caught)),
                    seen,
                ),
            stop.signal,
        );
        return () => stop.abort();
    }, [run, task]);
    if (text && text.trim().replace(/^\[error\] /, "") === said?.trim()) return null;
    return (
        <section aria-label="Output">
            <h2>Output</h2>
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            {text === undefined && error === undefined && (
                <p className="soft" role="status">
                    Waiting for output…
                </p>
            )}
            {text !== undefined &&
                (text === "" ? <p className="soft">{isOver ? "No output." : "No output yet."}</p> : <Terminal text={text} />)}
        </section>
    );
}
