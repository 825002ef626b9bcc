/** What has changed in the directory of a session, as its git says. Nothing is changed from here: a button asks the agent to commit. */
import { type KeyboardEvent, type MouseEvent, useCallback, useEffect, useId, useMemo, useRef, useState } from "react";
import { Icon } from "../base/icons.tsx";
import { ago } from "../base/words.ts";
import type { ChangedFile, Looks, Since } from "../data/looks.ts";
import { insertIntoComposer } from "../session/use-digits.ts";
import { Changes, type Line } from "../text/changes.tsx";
import { oneLine, strict, visible } from "../text/visible.ts";
import type { ShownProps } from "./looked.tsx";
import { readPatch } from "./patch.ts";
import { Again, Trouble } from "./trouble.tsx";
import { type Seen, useLook } from "./use-look.ts";
import { BINARY, branchWords, COMMIT, counted, SINCE } from "./words.ts";

export function Changed({ looks, isWorking, mayWrite }: ShownProps) {
    const [since, setSince] = useState<Since>("begin");
    const state = useLook(useCallback((signal: AbortSignal) => looks.state(since, signal), [looks, since]));
    const log = useLook(useCallback((signal: AbortSignal) => looks.log(signal), [looks]));
    const [againState, againLog] = [state.again, log.again];
    const again = useCallback(() => {
        againState();
        againLog();
    }, [againState, againLog]);
    useWhenItRests(isWorking, again);
    const [open, setOpen] = useState<string>();
    const { value } = state;
    return (
        <>
            <SinceChoice since={since} onSince={setSince} />
            <Trouble seen={state} />
            {value && (
                <section aria-label="Changed files" className="stack">
                    <div className="looked-head">
                        <p className="soft">
                            {value.branch !== undefined && <bdi className="branch">{strict(value.branch)}</bdi>}{" "}
                            {oneLine(branchWords(value), 100)}
                        </p>
                        {mayWrite && value.files.length > 0 && (
                            <button type="button" className="button small" onClick={() => insertIntoComposer(COMMIT)}>
                                Have the agent commit this
                            </button>
                        )}
                    </div>
                    {value.notes.map((note) => (
                        <p key={note} className="soft">
                            {visible(note)}
                        </p>
                    ))}
                    <div className="looked-head">
                        <p className="soft">{counted(value, since)}</p>
                        <Again seen={state} onAgain={again} />
                    </div>
                    {value.files.length > 0 && (
                        <ul className="list">
                            {value.files.map((file) => (
                                <li key={file.path}>
                                    <File
                                        file={file}
                                        isOpen={open === file.path}
                                        onOpen={() => setOpen(open === file.path ? undefined : file.path)}
                                    />
                                    {open === file.path && (
                                        <FileChange
                                            key={value.seen}
                                            looks={looks}
                                            since={since}
                                            path={file.path}
                                            mayWrite={mayWrite}
                                        />
                                    )}
                                </li>
                            ))}
                        </ul>
                    )}
                </section>
            )}
            {value && <Log seen={log} />}
        </>
    );
}

/** Reads it again when the agent has ended a turn. */
function useWhenItRests(isWorking: boolean, again: () => void) {
    const was = useRef(isWorking);
    useEffect(() => {
        if (was.current && !isWorking) again();
        was.current = isWorking;
    }, [isWorking, again]);
}

function SinceChoice({ since, onSince }: { since: Since; onSince: (since: Since) => void }) {
    const name = useId();
    return (
        <fieldset className="segments">
            <legend className="hidden-label">What is compared</legend>
            {(Object.keys(SINCE) as Since[]).map((one) => (
                <label key={one}>
                    <input type="radio" name={name} checked={one === since} onChange={() => onSince(one)} />
                    <span>{SINCE[one]}</span>
                </label>
            ))}
        </fieldset>
    );
}

function File({ file, isOpen, onOpen }: { file: ChangedFile; isOpen: boolean; onOpen: () => void }) {
    return (
        <button type="button" className="looked-row" aria-expanded={isOpen} onClick={onOpen}>
            <Icon name="chevron" size={14} />
            <bdi className="path">{strict(file.path)}</bdi>
            <span className="kind">{file.kind === "modified" ? "" : oneLine(file.kind, 20)}</span>
            <span className="counts">
                {file.added !== null && <span className="plus">+{file.added.toLocaleString()}</span>}{" "}
                {file.removed !== null && <span className="minus">−{file.removed.toLocaleString()}</span>}
            </span>
        </button>
    );
}

interface ChangeProps {
    looks: Looks;
    since: Since;
    path: string;
    mayWrite: boolean;
}

function FileChange({ looks, since, path, mayWrite }: ChangeProps) {
    const seen = useLook(useCallback((signal: AbortSignal) => looks.diff(since, path, signal), [looks, since, path]));
    const patch = useMemo(() => seen.value && readPatch(seen.value.text), [seen.value]);
    const given = useMemo(
        () =>
            patch && {
                ...patch,
                number: (line: Line) => <Place line={line} mayWrite={mayWrite} />,
                on: mayWrite ? chosen(path) : {},
            },
        [patch, mayWrite, path],
    );
    if (!seen.value || !given)
        return (
            <div className="looked-diff">
                <Trouble seen={seen} />
            </div>
        );
    return (
        <div className="looked-diff">
            {given.isBinary || given.lines.length === 0 ? (
                <p className="soft">{/^(diff |$)/.test(seen.value.text) ? BINARY : visible(seen.value.text)}</p>
            ) : (
                <Changes diff={{ path, newText: "", cut: seen.value.cut }} given={given} />
            )}
        </div>
    );
}

/** The number of a line. It is no button of the page, because its height is that of a line; the whole row can be tapped. */
function Place({ line, mayWrite }: { line: Line; mayWrite: boolean }) {
    const number = line.after ?? line.before;
    if (!mayWrite || line.now === undefined) return number ?? "";
    return (
        <span role="button" tabIndex={-1} data-line={line.now} aria-label={`${number}: mention line ${line.now}`}>
            {number}
        </span>
    );
}

const place = (row: Element | null | undefined): HTMLElement | null => row?.querySelector<HTMLElement>("[data-line]") ?? null;

/** A line that is tapped, or chosen by arrows and Enter, is put into the composer with its path. */
function chosen(path: string) {
    const choose = (at: HTMLElement | null) => {
        if (at) insertIntoComposer(`${path}:${at.dataset["line"]} `);
    };
    return {
        onClick: ({ target, detail }: MouseEvent<HTMLElement>) => {
            // What is selected, as by two clicks, is to be copied.
            if (detail <= 1 && getSelection()?.isCollapsed !== false) choose(place((target as Element).closest("tr")));
        },
        onKeyDown: (event: KeyboardEvent<HTMLElement>) => {
            const target = event.target as HTMLElement;
            const isLine = target.matches("[data-line]");
            if (event.key === "Enter" && isLine) {
                event.preventDefault();
                choose(target);
            }
            const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            if (step === undefined) return;
            event.preventDefault();
            const all = [...event.currentTarget.querySelectorAll<HTMLElement>("[data-line]")];
            all[Math.max(0, Math.min(all.length - 1, all.indexOf(target) + step))]?.focus();
        },
    };
}

function Log({ seen }: { seen: Seen<Awaited<ReturnType<Looks["log"]>>> }) {
    return (
        <section aria-label="Commits" className="stack">
            <h2>The last commits</h2>
            <Trouble seen={seen} />
            {seen.value?.length === 0 && <p className="soft">There is no commit yet.</p>}
            {seen.value && seen.value.length > 0 && (
                <ol className="list commits">
                    {seen.value.map(({ id, subject, author, at }) => (
                        <li key={id}>
                            <bdi className="subject">{oneLine(subject, 200)}</bdi>
                            <span className="about">
                                <code>{id.slice(0, 8)}</code> <bdi>{oneLine(author, 60)}</bdi> {ago(at)}
                            </span>
                        </li>
                    ))}
                </ol>
            )}
        </section>
    );
}
