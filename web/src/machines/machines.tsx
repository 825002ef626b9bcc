/** The computers where agents run. */
import { useEffect, useState } from "react";
import { useAttempt } from "../base/attempt.ts";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { say } from "../base/toast.tsx";
import { ago } from "../base/words.ts";
import { type MachineRow, machines, removeMachine, showMachines } from "../data/machines.ts";
import { oneLine } from "../text/visible.ts";

export function Machines() {
    const { rows, isLoaded, error } = useStore(machines);
    useTitle("Machines");
    useEffect(showMachines, []);
    return (
        <div className="page">
            <div className="inner">
                <h1>Machines</h1>
                {error !== undefined && (
                    <p className="banner bad" role="alert">
                        {error}
                    </p>
                )}
                {!isLoaded && error === undefined && (
                    <div className="list" role="status" aria-label="Loading">
                        <div className="skeleton" />
                    </div>
                )}
                {isLoaded && rows.length === 0 && (
                    <div className="empty">
                        <h2>No machines yet</h2>
                        <p>
                            A machine appears here when a terminal on it starts its first agent, or when its runner is
                            registered.
                        </p>
                        <pre>ensemble claude</pre>
                    </div>
                )}
                {rows.length > 0 && (
                    <ul className="list">
                        {rows.map((row) => (
                            <li key={row.id}>
                                <Entry row={row} />
                            </li>
                        ))}
                    </ul>
                )}
            </div>
        </div>
    );
}

function Entry({ row }: { row: MachineRow }) {
    const [asks, setAsks] = useState(false);
    const [isBusy, setBusy] = useState(false);
    const { error, run } = useAttempt(setBusy);
    const remove = () =>
        run(async () => {
            await removeMachine(row.id);
            say(`Deleted: ${oneLine(row.name, 60)}`);
        });
    const about = [row.system, row.ref].filter((text) => text !== undefined && text !== "").join(" · ");
    const missing = row.online ? row.offers.filter((one) => !one.offered) : [];
    return (
        <div className={asks ? "entry asks machine" : "entry machine"}>
            <span className={row.online ? "dot idle" : "dot"} />
            <span className="what">
                <bdi className="name">{oneLine(row.name, 120)}</bdi>
                <span className="about">
                    <bdi>{oneLine(about, 120)}</bdi>
                </span>
                {asks && (
                    <span className="about wraps">
                        Its runner stops, and everything that runs there ends. You can still read its sessions.
                    </span>
                )}
                {error !== undefined && (
                    <span className="error-text" role="alert">
                        {error}
                    </span>
                )}
                {row.online && row.offers.length > 0 && (
                    <span className="tags">
                        {row.offers.map((one) => (
                            <span key={one.provider} className={one.offered ? "tag" : "tag off"}>
                                {oneLine(one.provider, 40)}
                                {!one.offered && <span className="hidden-label"> not available</span>}
                            </span>
                        ))}
                    </span>
                )}
                {missing.length > 0 && (
                    <details className="about wraps">
                        <summary>Why not {missing.map((one) => oneLine(one.provider, 40)).join(", ")}?</summary>
                        {missing.map((one) => (
                            <p key={one.provider}>
                                <b>{oneLine(one.provider, 40)}</b>:{" "}
                                <bdi>{oneLine(one.reason ?? "the machine does not say", 300)}</bdi>
                            </p>
                        ))}
                    </details>
                )}
                {!row.online && !asks && (
                    <span className="about wraps">
                        You cannot start sessions on it from here yet. Run on it: <code>ensemble runner install</code>
                    </span>
                )}
            </span>
            {!asks && (
                <span className="state">
                    {row.online ? (
                        "Runner online"
                    ) : row.lastActiveAt ? (
                        <>Runner last seen {ago(row.lastActiveAt)}</>
                    ) : (
                        "No runner"
                    )}
                </span>
            )}
            {!asks && (
                <button
                    type="button"
                    className="button small plain"
                    aria-label={`Delete ${oneLine(row.name, 60)}`}
                    onClick={() => setAsks(true)}
                >
                    Delete
                </button>
            )}
            {asks && (
                <>
                    <button type="button" className="button small danger" disabled={isBusy} onClick={remove}>
                        Delete it
                    </button>
                    <button type="button" className="button small" disabled={isBusy} onClick={() => setAsks(false)}>
                        Cancel
                    </button>
                </>
            )}
        </div>
    );
}
