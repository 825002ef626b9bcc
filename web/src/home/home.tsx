/** What needs a person first, then the sessions. */
import { lazy, Suspense, useDeferredValue, useEffect, useMemo, useState } from "react";
import { Link } from "wouter";
import { Icon } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { ago, folder } from "../base/words.ts";
import { unconfirmed } from "../data/machines.ts";
import { nameOf, names } from "../data/people.ts";
import { isNew, type SessionRow, stateOf, WORDS } from "../data/row.ts";
import { sessions } from "../data/sessions.ts";
import { Dot } from "../shell/dot.tsx";
import { paths } from "../shell/route.ts";
import { oneLine } from "../text/visible.ts";
import { NeedsMe } from "./needs.tsx";

const Empty = lazy(() => import("./empty.tsx"));

export function Home() {
    const { rows, isLoaded, error } = useStore(sessions);
    const [search, setSearch] = useState("");
    const wanted = useDeferredValue(search.trim().toLowerCase());
    const asking = useMemo(() => rows.filter((row) => stateOf(row) === "ask"), [rows]);
    const [isArchive, setArchive] = useState(false);
    const listed = useMemo(
        () => rows.filter((row) => row.archived === isArchive && (wanted === "" || matches(row, wanted))),
        [rows, wanted, isArchive],
    );
    const isPlain = wanted === "" && !isArchive;
    const ended = isPlain ? listed.filter(isNew) : [];
    const others = isPlain ? listed.filter((row) => !isNew(row)) : listed;
    const hasArchived = rows.some((row) => row.archived);
    useTitle(asking.length > 0 ? `(${asking.length}) Home` : "Home");
    useEffect(() => void import("../data/demo.ts").then(({ removeLeft }) => removeLeft()), []);
    return (
        <div className="page">
            <div className="inner">
                <h1>Home</h1>
                <Unconfirmed />
                {error !== undefined && rows.length === 0 && (
                    <p className="banner bad" role="alert">
                        {error}
                    </p>
                )}
                {asking.length > 0 && (
                    <section className="section" aria-labelledby="needs">
                        <h2 id="needs">Needs you</h2>
                        <NeedsMe rows={asking} />
                    </section>
                )}
                {ended.length > 0 && (
                    <section className="section" aria-labelledby="finished">
                        <h2 id="finished">Finished</h2>
                        <List rows={ended} />
                    </section>
                )}
                <section className="section" aria-labelledby="sessions">
                    <div className="heading">
                        <h2 id="sessions">{isArchive ? "Archived sessions" : "Sessions"}</h2>
                        <span className="space" />
                        <Link href={paths.start} className="button small">
                            <Icon name="plus" size={14} /> New
                        </Link>
                        {rows.length > 5 && (
                            <label className="search">
                                <span className="hidden-label">Search in titles</span>
                                <Icon name="search" size={14} />
                                <input
                                    className="input"
                                    type="search"
                                    placeholder="Search"
                                    value={search}
                                    onChange={(event) => setSearch(event.target.value)}
                                />
                            </label>
                        )}
                    </div>
                    {!isLoaded && rows.length === 0 && error === undefined && <Loading />}
                    {isLoaded && rows.length === 0 && (
                        <Suspense>
                            <Empty />
                        </Suspense>
                    )}
                    {others.length > 0 && <List rows={others} />}
                    {rows.length > 0 && listed.length === 0 && wanted === "" && (
                        <p className="empty">{isArchive ? "Nothing is archived." : "Every session is archived."}</p>
                    )}
                    {rows.length > 0 && listed.length === 0 && wanted !== "" && (
                        <p className="empty">No title has “{oneLine(search, 60)}” in it.</p>
                    )}
                    {(hasArchived || isArchive) && (
                        <div>
                            <button type="button" className="button plain small" onClick={() => setArchive(!isArchive)}>
                                {isArchive ? "Back to the sessions" : "Archived sessions"}
                            </button>
                        </div>
                    )}
                </section>
            </div>
        </div>
    );
}

/** Machines that may still obey a device that was removed. */
function Unconfirmed() {
    const { names: machines, isOfWords } = useStore(unconfirmed);
    if (machines.length === 0) return null;
    const shown =
        machines
            .slice(0, 5)
            .map((name) => oneLine(name, 60))
            .join(", ") + (machines.length > 5 ? " …" : "");
    const [what, who] = isOfWords
        ? ["your old recovery words no longer work", "those words"]
        : ["a device was removed", "that device"];
    const [has, it] = machines.length === 1 ? ["has", "it"] : ["have", "them"];
    return (
        <p
            className="banner"
            role="status"
        >{`${shown} ${has} not confirmed that ${what}. Until then, anyone who has ${who} and controls the server can command ${it}.`}</p>
    );
}

function matches(row: SessionRow, wanted: string): boolean {
    const text = [row.title, row.directory, row.host, row.agent].join(" ").toLowerCase();
    return wanted.split(/\s+/).every((word) => text.includes(word));
}

function List({ rows }: { rows: readonly SessionRow[] }) {
    return (
        <ul className="list">
            {rows.map((row) => (
                <li key={row.id}>
                    <Entry row={row} />
                </li>
            ))}
        </ul>
    );
}

function Entry({ row }: { row: SessionRow }) {
    useStore(names);
    const owner = row.accessLevel === "owner" ? undefined : `from ${oneLine(nameOf(row.ownerId), 60)}`;
    const about = [owner, row.agent, row.directory && folder(row.directory), row.host].filter(
        (text) => text !== undefined && text !== "",
    );
    return (
        <Link href={paths.session(row.id)} className={isNew(row) ? "entry new" : "entry"}>
            <Dot row={row} />
            <span className="what">
                <bdi className="name">{oneLine(row.title, 160)}</bdi>
                <span className="about">
                    <bdi>{oneLine(about.join(" · "), 160)}</bdi>
                </span>
            </span>
            <span className="state">
                <State row={row} />
            </span>
        </Link>
    );
}

function State({ row }: { row: SessionRow }) {
    const state = stateOf(row);
    if (state === "ask") return <span className="tag ask">{row.attention === "question" ? "Question" : "Needs approval"}</span>;
    if (state === "waits") return <span>{WORDS.waits}</span>;
    if (state === "working") return <span className="tag accent">{WORDS.working}</span>;
    if (state === "failed") return <span className="error-text">{WORDS.failed}</span>;
    return <time dateTime={row.updatedAt}>{ago(row.updatedAt)}</time>;
}

function Loading() {
    return (
        <div className="list" role="status" aria-label="Loading">
            {[0, 1, 2].map((at) => (
                <div key={at} className="skeleton" />
            ))}
        </div>
    );
}
