/** The runs of the account. */
import { useCallback, useEffect, useState } from "react";
import { Link } from "wouter";
import { Icon } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { ago } from "../base/words.ts";
import { textOf } from "../data/failure.ts";
import { type Run, runChanges, runsPage } from "../data/runs.ts";
import { useLoaded } from "../data/use-loaded.ts";
import { KeptNote } from "../shell/kept-note.tsx";
import { paths } from "../shell/route.ts";
import { oneLine } from "../text/visible.ts";
import { DOTS, RUN_WORDS } from "./words.ts";

/** Of the run that starts a session, by this page and by the command line. */
const START_TITLE = "Start of a session";

export function Runs() {
    const first = useLoaded(
        useCallback(() => runsPage(), []),
        "runs",
    );
    const [more, setMore] = useState<{ runs: Run[]; nextCursor: string | undefined }>();
    const [error, setError] = useState<string>();
    useTitle("Runs");
    const changes = useStore(runChanges);
    const { reload } = first;
    useEffect(() => {
        if (changes > 0) reload();
    }, [changes, reload]);
    const newest = first.value?.runs ?? [];
    // A new run moves the page, so that its end may be on the next one, too.
    // The start of a session is not listed: the session is in the list of sessions.
    const runs = [...newest, ...(more?.runs ?? []).filter(({ id }) => newest.every((run) => run.id !== id))].filter(
        ({ title }) => title !== START_TITLE,
    );
    const next = more ? more.nextCursor : first.value?.nextCursor;
    const load = () => {
        runsPage(next).then(
            (page) => setMore((before) => ({ runs: [...(before?.runs ?? []), ...page.runs], nextCursor: page.nextCursor })),
            (caught: unknown) => setError(textOf(caught)),
        );
    };
    return (
        <div className="page">
            <div className="inner">
                <div className="heading">
                    <h1>Runs</h1>
                    <Link href={paths.plan} className="button small">
                        <Icon name="plus" size={14} /> New
                    </Link>
                </div>
                {first.keptAt !== undefined && <KeptNote at={first.keptAt} />}
                {(error ?? (first.value ? undefined : first.error)) !== undefined && (
                    <p className="banner bad" role="alert">
                        {error ?? first.error}
                    </p>
                )}
                {!first.value && first.error === undefined && (
                    <div className="list" role="status" aria-label="Loading">
                        <div className="skeleton" />
                    </div>
                )}
                {first.value && runs.length === 0 && next === undefined && (
                    <div className="empty">
                        <h2>No runs yet</h2>
                        <p>
                            A run is one task, or several that depend on each other. Agents on your machines do them.{" "}
                            <Link href={paths.plan}>Write a plan</Link>, or start one in a terminal:
                        </p>
                        <pre>ensemble do "fix the failing test"</pre>
                    </div>
                )}
                {runs.length > 0 && (
                    <ul className="list">
                        {runs.map((run) => (
                            <li key={run.id}>
                                <Entry run={run} />
                            </li>
                        ))}
                    </ul>
                )}
                {next !== undefined && (
                    <div>
                        <button type="button" className="button" onClick={load}>
                            Show older runs
                        </button>
                    </div>
                )}
            </div>
        </div>
    );
}

function Entry({ run }: { run: Run }) {
    const { total, completed, failed, running } = run.summary;
    const about = [`${completed} of ${total} done`, failed > 0 && `${failed} failed`, running > 0 && `${running} running`]
        .filter(Boolean)
        .join(" · ");
    return (
        <Link href={paths.run(run.id)} className="entry">
            <span className={`dot ${DOTS[run.status] ?? ""}`} />
            <span className="what">
                <bdi className="name">{oneLine(run.title ?? `Run ${run.ref}`, 160)}</bdi>
                <span className="about">{about}</span>
            </span>
            <span className="state">
                {RUN_WORDS[run.status] ?? run.status} · <time dateTime={run.createdAt}>{ago(run.createdAt)}</time>
            </span>
        </Link>
    );
}
