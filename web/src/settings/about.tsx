/** Which version this is. */
import { useState } from "react";
import { useStore } from "../base/store.ts";
import { serverVersion } from "../data/account.ts";
import { textOf } from "../data/failure.ts";
import { lookForNew, versions } from "../data/update.ts";
import { useLoaded } from "../data/use-loaded.ts";
import { oneLine } from "../text/visible.ts";

export function About() {
    const { digest, next } = useStore(versions);
    const server = useLoaded(serverVersion);
    const [said, setSaid] = useState<string>();
    const look = () => {
        setSaid("Looking…");
        lookForNew().then(
            () => setSaid("Checked just now."),
            (caught: unknown) => setSaid(textOf(caught)),
        );
    };
    return (
        <section className="section" aria-labelledby="about">
            <h2 id="about">About</h2>
            <dl className="facts-list">
                <dt>Server</dt>
                <dd>{server.value ? oneLine(server.value, 60) : <span className="soft">{server.error ?? "…"}</span>}</dd>
                <dt>This page</dt>
                <dd>
                    {digest === undefined ? "It is not kept in this browser." : <code>{digest}</code>}
                    <small>
                        {digest !== undefined &&
                            "The digest (SHA-256) of all its files. It changes only when you accept a new version. "}
                        {next && "Update available."}
                    </small>
                </dd>
            </dl>
            {location.protocol === "http:" && (
                <p className="soft">
                    The keys of this browser belong to {location.origin}. Every page that is ever served at that address can use
                    them. On a computer with people whom you do not know, use <code>ensemble web</code>, and leave it running.
                </p>
            )}
            {digest !== undefined && (
                <div className="actions">
                    <button type="button" className="button small" onClick={look}>
                        Look for a new version
                    </button>
                    <span className="soft" role="status">
                        {said ?? ""}
                    </span>
                </div>
            )}
        </section>
    );
}
