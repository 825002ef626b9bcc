/** A session whose agent is a script, for people who have no agent yet. */
import { useState } from "react";
import { useLocation } from "wouter";
import { beginDemo, leave } from "../data/demo.ts";
import { textOf } from "../data/failure.ts";
import type { MachineRow } from "../data/machines.ts";
import { paths } from "../shell/route.ts";
import { oneLine } from "../text/visible.ts";

export default function Demo({ machine, isPrimary }: { machine: MachineRow; isPrimary: boolean }) {
    const [, go] = useLocation();
    const [said, setSaid] = useState<string>();
    const [error, setError] = useState<string>();
    const begin = () => {
        const place = location.pathname;
        setError(undefined);
        setSaid("Asking the machine…");
        const waiting = (reason: string | undefined) =>
            setSaid(reason ? `Waiting: ${oneLine(reason, 120)}` : "The machine has not started it yet…");
        // This button goes when the list of sessions has the demo.
        beginDemo(machine, waiting).then(
            (id) => {
                // Who has left meanwhile is not brought back.
                if (location.pathname === place) go(paths.session(id));
                else leave(id);
            },
            (caught: unknown) => {
                setError(textOf(caught));
                setSaid(undefined);
            },
        );
    };
    return (
        <div className="stack">
            <button
                type="button"
                className={isPrimary ? "button primary" : "button plain"}
                disabled={said !== undefined}
                onClick={begin}
            >
                {said === undefined ? "Try a demo" : "Starting…"}
            </button>
            <p className="muted" role="status">
                {said ?? "Its agent is a script. It needs no key, and it is deleted when you leave it."}
            </p>
            {error !== undefined && (
                <p className="banner bad" role="alert">
                    {error}
                </p>
            )}
        </div>
    );
}
