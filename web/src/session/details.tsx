/** What a session is, and what can be done with the whole of it. */
import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import { Confirm } from "../base/confirm.tsx";
import { Dialog } from "../base/dialog.tsx";
import { useStore } from "../base/store.ts";
import { say } from "../base/toast.tsx";
import { clock, money } from "../base/words.ts";
import { textOf } from "../data/failure.ts";
import type { SessionRow } from "../data/row.ts";
import { archive, remove, rename, stopAgent } from "../data/session-actions.ts";
import { sessions } from "../data/sessions.ts";
import { paths } from "../shell/route.ts";
import { visible } from "../text/visible.ts";
import type { State } from "./types.ts";

interface Props {
    row: SessionRow;
    state: State | undefined;
    isOwner: boolean;
    onClose: () => void;
}

export function Details({ row, state, isOwner, onClose }: Props) {
    const [, go] = useLocation();
    const [title, setTitle] = useState(row.title);
    const [error, setError] = useState<string>();
    const [isBusy, setBusy] = useState(false);
    const [asks, setAsks] = useState(false);
    const attempt = (run: Promise<void>, then: () => void) => {
        setBusy(true);
        setError(undefined);
        run.then(then, (caught: unknown) => setError(textOf(caught))).finally(() => setBusy(false));
    };
    const renamed = (event: FormEvent) => {
        event.preventDefault();
        attempt(rename(row, title.trim()), onClose);
    };
    // The list gets it at once. The stream of the session does not report it.
    const listed = useStore(sessions).rows.find(({ id }) => id === row.id) ?? row;
    const archived = () => {
        const willBe = !listed.archived;
        attempt(archive(listed, willBe), () => {
            onClose();
            say(willBe ? "Archived" : "Back in the list", () => void archive(listed, !willBe));
            if (willBe) go(paths.home);
        });
    };
    // A page that is left can neither sign in nor try again: "Deleted" is said when the server has answered.
    const deleted = () =>
        attempt(remove(row.id), () => {
            onClose();
            go(paths.home);
            say("Deleted");
        });
    return (
        <Dialog title="Session" onClose={onClose}>
            {isOwner && (
                <form onSubmit={renamed}>
                    <div className="field">
                        <label htmlFor="title">Title</label>
                        <span className="row">
                            <input
                                id="title"
                                className="input"
                                value={title}
                                maxLength={200}
                                required
                                onChange={(event) => setTitle(event.target.value)}
                            />
                            <button
                                type="submit"
                                className="button"
                                disabled={isBusy || title.trim() === "" || title === row.title}
                            >
                                Rename
                            </button>
                        </span>
                    </div>
                </form>
            )}
            <section aria-label="Facts">
                <dl className="facts-list">
                    {state && (
                        <>
                            <dt>Agent</dt>
                            <dd>
                                {visible(state.agent)}
                                {state.model ? `, ${visible(state.model)}` : ""}
                            </dd>
                        </>
                    )}
                    {row.host && (
                        <>
                            <dt>Machine</dt>
                            <dd>
                                <bdi>{visible(row.host)}</bdi>
                            </dd>
                        </>
                    )}
                    {state && (
                        <>
                            <dt>Directory</dt>
                            <dd>
                                <bdi>
                                    <code>{visible(state.directory)}</code>
                                </bdi>
                            </dd>
                        </>
                    )}
                    {state?.branch && (
                        <>
                            <dt>Branch</dt>
                            <dd>
                                <bdi>
                                    <code>{visible(state.branch)}</code>
                                </bdi>
                            </dd>
                        </>
                    )}
                    {state?.context && state.context.size > 0 && (
                        <>
                            <dt>Context</dt>
                            <dd>
                                {state.context.used.toLocaleString()} of {state.context.size.toLocaleString()} tokens
                            </dd>
                        </>
                    )}
                    {state?.costUsd !== undefined && state.costUsd > 0 && (
                        <>
                            <dt>Cost so far</dt>
                            <dd>{money(state.costUsd)}</dd>
                        </>
                    )}
                    <dt>Changed</dt>
                    <dd>{clock(row.updatedAt)}</dd>
                    <dt>In a terminal</dt>
                    <dd>
                        <code>ensemble attach {row.ref}</code>
                    </dd>
                </dl>
            </section>
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            {isOwner && (
                <section aria-label="Actions">
                    <div className="row">
                        <button type="button" className="button" disabled={isBusy} onClick={archived}>
                            {listed.archived ? "Put back into the list" : "Archive"}
                        </button>
                        {state && state.phase !== "ended" && (
                            <button
                                type="button"
                                className="button"
                                disabled={isBusy}
                                onClick={() => attempt(stopAgent(row.id), onClose)}
                            >
                                Stop the agent
                            </button>
                        )}
                        {!asks && (
                            <button type="button" className="button danger" disabled={isBusy} onClick={() => setAsks(true)}>
                                Delete…
                            </button>
                        )}
                    </div>
                    {asks && (
                        <Confirm label="Delete this session?">
                            <p>Delete this session for everyone? This cannot be undone.</p>
                            <div className="row">
                                <button type="button" className="button danger" disabled={isBusy} onClick={deleted}>
                                    Delete
                                </button>
                                <button type="button" className="button" disabled={isBusy} onClick={() => setAsks(false)}>
                                    Cancel
                                </button>
                            </div>
                        </Confirm>
                    )}
                </section>
            )}
        </Dialog>
    );
}
