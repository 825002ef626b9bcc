/** The files below the directory of a session: one level at a time, and a file as text or picture. Nothing can be changed here. */
import { useCallback, useEffect, useState } from "react";
import { Icon, type IconName } from "../base/icons.tsx";
import type { Entry, FileShown, Looks } from "../data/looks.ts";
import { Code } from "../text/code.tsx";
import { Long } from "../text/long.tsx";
import { strict } from "../text/visible.ts";
import type { ShownProps } from "./looked.tsx";
import { Again, Trouble } from "./trouble.tsx";
import { useLook } from "./use-look.ts";
import { CANNOT_OPEN, MORE_NAMES, NO_TEXT, SECRETS, size, TOO_LONG } from "./words.ts";

/** The last part of a path. A backslash is a character like others. */
const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** Longer texts are shown without colours, in bytes. */
const COLOURED = 64 << 10;

export function Files({ looks }: ShownProps) {
    /** The directory, and below it the file that is open. */
    const [below, setBelow] = useState("");
    const [file, setFile] = useState<Entry>();
    const opened = (entry: Entry | undefined, directory: string) => {
        setFile(entry);
        setBelow(directory);
    };
    return (
        <>
            <Trail below={below} file={file} onDirectory={(path) => opened(undefined, path)} />
            {file ? (
                <FileView key={file.path} looks={looks} file={file} />
            ) : (
                <Level key={below} looks={looks} below={below} onOpen={opened} />
            )}
        </>
    );
}

function Trail({ below, file, onDirectory }: { below: string; file: Entry | undefined; onDirectory: (path: string) => void }) {
    const parts = below === "" ? [] : below.split("/");
    const all = [{ name: "Files", path: "" }, ...parts.map((name, at) => ({ name, path: parts.slice(0, at + 1).join("/") }))];
    return (
        <nav aria-label="Where you are">
            <ol className="trail">
                {all.map(({ name, path }) => (
                    <li key={path}>
                        {path === below && !file ? (
                            <span aria-current="location">{strict(name)}</span>
                        ) : (
                            <button type="button" className="button small plain" onClick={() => onDirectory(path)}>
                                <bdi>{strict(name)}</bdi>
                            </button>
                        )}
                    </li>
                ))}
                {file && (
                    <li>
                        <span aria-current="location">
                            <bdi>{strict(nameOf(file.path))}</bdi>
                        </span>
                    </li>
                )}
            </ol>
        </nav>
    );
}

const ICONS: Record<Entry["kind"], IconName> = { directory: "chevron", file: "read", link: "read", other: "question" };

interface LevelProps {
    looks: Looks;
    below: string;
    onOpen: (file: Entry | undefined, below: string) => void;
}

function Level({ looks, below, onOpen }: LevelProps) {
    const seen = useLook(useCallback((signal: AbortSignal) => looks.names(below, signal), [looks, below]));
    const { value } = seen;
    const open = (entry: Entry) =>
        onOpen(entry.kind === "directory" ? undefined : entry, entry.kind === "directory" ? entry.path : below);
    return (
        <section aria-label="Names" className="stack">
            <Trouble seen={seen} />
            {value?.entries.length === 0 && <p className="soft">This directory is empty.</p>}
            {value && value.entries.length > 0 && (
                <ul className="list">
                    {value.entries.map((entry) => (
                        <li key={entry.path}>
                            <button
                                type="button"
                                className={`looked-row ${entry.kind} ${entry.isIgnored ? "ignored" : ""}`}
                                disabled={entry.kind === "other"}
                                onClick={() => open(entry)}
                            >
                                <Icon name={ICONS[entry.kind]} size={14} />
                                <bdi className="path">
                                    {strict(nameOf(entry.path))}
                                    {entry.kind === "directory" && "/"}
                                </bdi>
                                <span className="kind">
                                    {entry.kind === "other"
                                        ? CANNOT_OPEN
                                        : entry.isIgnored
                                          ? "not in git"
                                          : entry.kind === "link"
                                            ? "link"
                                            : ""}
                                </span>
                                {entry.bytes !== undefined && <span className="counts">{size(entry.bytes)}</span>}
                            </button>
                        </li>
                    ))}
                </ul>
            )}
            {value?.more && <p className="soft">{MORE_NAMES}</p>}
            <Again seen={seen} onAgain={seen.again} />
        </section>
    );
}

function FileView({ looks, file }: { looks: Looks; file: Entry }) {
    const [isWanted, setWanted] = useState(!file.isIgnored);
    if (isWanted) return <FileText looks={looks} path={file.path} />;
    return (
        <div className="empty">
            <p>{SECRETS}</p>
            <button type="button" className="button" onClick={() => setWanted(true)}>
                Open it
            </button>
        </div>
    );
}

function FileText({ looks, path }: { looks: Looks; path: string }) {
    const seen = useLook(useCallback((signal: AbortSignal) => looks.file(path, signal), [looks, path]));
    return (
        <section aria-label="File" className="stack">
            <Trouble seen={seen} />
            {seen.value && <FileContent path={path} file={seen.value} />}
            <Again seen={seen} onAgain={seen.again} />
        </section>
    );
}

function FileContent({ path, file }: { path: string; file: FileShown }) {
    const name = strict(nameOf(path));
    if (file.picture) return <Picture bytes={file.picture} name={name} />;
    if (file.text === undefined)
        return (
            <p className="soft">
                {size(file.bytes)}. {file.isTooLong ? TOO_LONG : NO_TEXT}
            </p>
        );
    if (file.text === "") return <p className="soft">This file is empty.</p>;
    if (file.bytes > COLOURED) return <Long className="code" text={strict(file.text)} label={name} language="" />;
    return <Code text={strict(file.text)} language={/\.(\w+)$/.exec(path)?.[1]} />;
}

/** A picture is drawn by the browser as one: a script in it does not run. */
function Picture({ bytes, name }: { bytes: Blob; name: string }) {
    const [address, setAddress] = useState<string>();
    const [isBroken, setBroken] = useState(false);
    useEffect(() => {
        const made = URL.createObjectURL(bytes);
        setAddress(made);
        return () => URL.revokeObjectURL(made);
    }, [bytes]);
    if (isBroken) return <p className="soft">This browser cannot show this picture.</p>;
    return address && <img className="looked-picture" src={address} alt={name} onError={() => setBroken(true)} />;
}
