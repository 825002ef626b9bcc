/** One run, live. */
import { useEffect, useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { Icon } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { say } from "../base/toast.tsx";
import { ago, money } from "../base/words.ts";
import { textOf } from "../data/failure.ts";
import { doubt, isNotSigned, NOT_CHECKED, RunFeed, type Task } from "../data/runs.ts";
import { KeptNote } from "../shell/kept-note.tsx";
import { paths } from "../shell/route.ts";
import { oneLine } from "../text/visible.ts";
import { Graph, MOST_DRAWN, nameOf } from "./graph.tsx";
import { TaskPanel } from "./task.tsx";
import { hasWorktree, isOpen as isNotApplied } from "./worktree.tsx";
import { DOTS, lasted, RUN_WORDS, TASK_WORDS } from "./words.ts";

const FIRST = 100;

export function RunPage({ id }: { id: string }) {
    const feed = useMemo(() => new RunFeed(id), [id]);
    const [again, setAgain] = useState(0);
    // A run that has ended is followed again when it continues.
    useEffect(() => feed.watch(), [feed, again]);
    const followAgain = () => setAgain((count) => count + 1);
    const { run, tasks, error, keptAt } = useStore(feed.view);
    const [chosen, setChosen] = useState<string>();
    const [most, setMost] = useState(FIRST);
    const [failure, setFailure] = useState<string>();
    const [isBusy, setBusy] = useState(false);
    const [asks, setAsks] = useState(false);
    const [, go] = useLocation();
    const title = run ? oneLine(run.title ?? `Run ${run.ref}`, 160) : "Run";
    useTitle(title);
    const attempt = (action: Promise<void>) => {
        setBusy(true);
        setFailure(undefined);
        action.catch((caught: unknown) => setFailure(textOf(caught))).finally(() => setBusy(false));
    };
    const isOver = run !== undefined && ["completed", "failed", "cancelled"].includes(run.status);
    const unsaved = tasks.filter(isNotApplied);
    const deleted = async (): Promise<void> => {
        const left: string[] = [];
        for (const task of tasks.filter(hasWorktree)) {
            // The question before the deletion says that it is lost.
            const why = await feed
                .order(task, "discard", true)
                .then(
                    ({ state, failure }) =>
                        state === "discarded"
                            ? undefined
                            : (failure ?? "Its machine may be offline: try again when it is back."),
                    textOf,
                );
            if (why !== undefined) left.push(`The worktree of ${nameOf(task)} could not be removed. ${why}`);
        }
        if (left.length > 0) throw new Error(`${left.join(" ")} The run was not deleted.`);
        await feed.remove();
        say("Deleted");
        go(paths.runs);
    };
    const isDrawn = tasks.length > 1 && tasks.length <= MOST_DRAWN && tasks.some((task) => task.dependsOn.length > 0);
    const cost = tasks.reduce((sum, task) => sum + (task.usage?.costUsd ?? 0), 0);
    return (
        <div className="page">
            <div className="inner">
                <div className="heading">
                    <Link href={paths.runs} className="icon-button" aria-label="All runs">
                        <Icon name="back" />
                    </Link>
                    <h1>
                        <bdi>{title}</bdi>
                    </h1>
                    <span className="space" />
                    {run && keptAt === undefined && !isOver && (
                        <button
                            type="button"
                            className="button danger"
                            disabled={isBusy || run.status === "canceling"}
                            onClick={() => attempt(feed.cancel())}
                        >
                            Cancel
                        </button>
                    )}
                    {run && keptAt === undefined && isOver && run.status !== "completed" && (
                        <button
                            type="button"
                            className="button"
                            disabled={isBusy}
                            onClick={() => attempt(feed.retry().then(followAgain))}
                        >
                            Retry
                        </button>
                    )}
                    {run && keptAt === undefined && isOver && !asks && (
                        <button type="button" className="button danger" disabled={isBusy} onClick={() => setAsks(true)}>
                            Delete…
                        </button>
                    )}
                </div>
                {asks && (
                    <div className="empty">
                        <p>
                            Delete this run with what its tasks have said? This cannot be undone.
                            {tasks.some(hasWorktree) && " Its worktrees are removed from their machines."}
                            {unsaved.length > 0 && (
                                <>
                                    {" "}
                                    What <bdi>{unsaved.map(nameOf).join(", ")}</bdi> changed was not applied and is lost.
                                </>
                            )}
                        </p>
                        <div className="row">
                            <button
                                type="button"
                                className="button danger"
                                disabled={isBusy}
                                onClick={() => attempt(deleted())}
                            >
                                Delete
                            </button>
                            <button type="button" className="button" disabled={isBusy} onClick={() => setAsks(false)}>
                                Cancel
                            </button>
                        </div>
                    </div>
                )}
                {keptAt !== undefined && <KeptNote at={keptAt} />}
                {(error ?? failure) !== undefined && (
                    <p className="banner bad" role="alert">
                        {error ?? failure}
                    </p>
                )}
                {!run && error === undefined && (
                    <p className="soft" role="status">
                        Opening…
                    </p>
                )}
                {tasks.some(isNotSigned) && (
                    <p className="banner bad" role="alert">
                        Tasks of this run are not signed by your devices. The server may have answered with something else:
                        their titles are not shown.
                    </p>
                )}
                {tasks.length > 0 && run?.title != null && tasks.every((task) => doubt(task) !== undefined) && (
                    <p className="soft">The title is {NOT_CHECKED}.</p>
                )}
                {run && (
                    <p className="soft run-facts">
                        <span className={`dot ${DOTS[run.status] ?? ""}`} />{" "}
                        <span role="status">
                            {RUN_WORDS[run.status] ?? run.status} · {run.summary.completed} of {run.summary.total} done
                            {run.summary.failed > 0 && ` · ${run.summary.failed} failed`}
                        </span>{" "}
                        · started {ago(run.createdAt)}
                        {run.startedAt && ` · ${lasted(run.startedAt, run.finishedAt)}`}
                        {cost > 0 && ` · ${money(cost)}`}
                    </p>
                )}
                {isDrawn && <Graph tasks={tasks} chosen={chosen} onChoose={setChosen} />}
                {tasks.length > 0 && (
                    <ul className="list">
                        {tasks.slice(0, most).map((task) => (
                            <li key={task.id}>
                                <Entry
                                    task={task}
                                    isOpen={chosen === task.id}
                                    onToggle={() => setChosen(chosen === task.id ? undefined : task.id)}
                                />
                                {chosen === task.id && (
                                    <TaskPanel feed={feed} task={task} canAct={keptAt === undefined} onContinue={followAgain} />
                                )}
                            </li>
                        ))}
                    </ul>
                )}
                {tasks.length > most && (
                    <div>
                        <button type="button" className="button" onClick={() => setMost(most * 4)}>
                            Show more ({(tasks.length - most).toLocaleString()} tasks are left)
                        </button>
                    </div>
                )}
            </div>
        </div>
    );
}

function Entry({ task, isOpen, onToggle }: { task: Task; isOpen: boolean; onToggle: () => void }) {
    const facts = [
        task.provider,
        task.attempt > 1 && `attempt ${task.attempt}`,
        lasted(task.startedAt, task.finishedAt),
        task.usage?.costUsd ? money(task.usage.costUsd) : "",
    ]
        .filter(Boolean)
        .join(" · ");
    return (
        <button type="button" className="entry as-row" aria-expanded={isOpen} onClick={onToggle}>
            <span className={`dot ${DOTS[task.status] ?? ""}`} />
            <span className="what">
                <bdi className="name">{nameOf(task)}</bdi>
                <span className="about">
                    {task.status === "queued" && task.waitingReason ? oneLine(task.waitingReason, 160) : facts}
                </span>
            </span>
            <span className="state">{TASK_WORDS[task.status] ?? task.status}</span>
        </button>
    );
}
