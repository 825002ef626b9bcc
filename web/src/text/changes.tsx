/** What an edit changes: the lines that go and come, with three unchanged ones around. */
import { structuredPatch } from "diff";
import { type HTMLAttributes, type ReactNode, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { look, setLook } from "../base/look.ts";
import { useStore } from "../base/store.ts";
import { useRelative } from "../session/paths.ts";
import { strict } from "./visible.ts";

/** Beyond this the whole text is shown as new: finding the smallest change takes too long. */
const LONGEST_MS = 200;
/** Up to this many characters it never takes too long, so a busy machine shows the smallest change, too. */
const ALWAYS = 2_000;
const MOST_LINES = 400;
/** The characters of a line that are drawn at first. */
const MOST_CHARACTERS = 2_000;

export interface Diff {
    path: string;
    oldText?: string | null | undefined;
    newText: string;
    /** Where the old text begins in its file, from 1. */
    line?: number | undefined;
    cut?: number | undefined;
}

export interface Line {
    sign: "+" | "-" | " " | "…";
    text: string;
    before?: number | undefined;
    after?: number | undefined;
    /** The line of the file as it is now, also in the place of one that is gone. */
    now?: number | undefined;
}

function linesOf(diff: Diff, moved: number): Line[] {
    const old = diff.oldText ?? "";
    const timeout = old.length + diff.newText.length > ALWAYS ? LONGEST_MS : Infinity;
    const patch = structuredPatch("", "", old, diff.newText, "", "", { context: 3, timeout });
    if (!patch) {
        const all = (text: string, sign: "+" | "-") => text.split("\n").map((line) => ({ sign, text: line }));
        return [...(old ? all(old, "-") : []), ...all(diff.newText, "+")];
    }
    // A part of a file whose place is not known has no numbers.
    const first = diff.oldText == null ? 1 : diff.line;
    const number = (at: number) => (first === undefined ? undefined : at + first - 1);
    const lines: Line[] = [];
    for (const hunk of patch.hunks) {
        if (lines.length > 0 || hunk.oldStart > 1) lines.push({ sign: "…", text: "" });
        let [before, after] = [hunk.oldStart, hunk.newStart + moved];
        for (const line of hunk.lines) {
            const text = line.slice(1);
            if (line[0] === "+") lines.push({ sign: "+", text, after: number(after++) });
            else if (line[0] === "-") lines.push({ sign: "-", text, before: number(before++) });
            else if (line[0] === " ") lines.push({ sign: " ", text, before: number(before++), after: number(after++) });
        }
    }
    return lines;
}

/** What is removed and what is added in its place, in one row. */
function paired(lines: readonly Line[]): [old: Line | undefined, now: Line | undefined][] {
    const rows: [Line | undefined, Line | undefined][] = [];
    for (let at = 0; at < lines.length;) {
        const [gone, come]: [Line[], Line[]] = [[], []];
        for (; lines[at]?.sign === "-"; at++) gone.push(lines[at] as Line);
        for (; lines[at]?.sign === "+"; at++) come.push(lines[at] as Line);
        for (let row = 0; row < Math.max(gone.length, come.length); row++) rows.push([gone[row], come[row]]);
        if (gone.length + come.length > 0) continue;
        rows.push([lines[at], lines[at]]);
        at++;
    }
    return rows;
}

/** The width that two columns of code need. */
const WIDE = "(min-width: 1000px)";

function useWide(): boolean {
    const media = useMemo(() => matchMedia(WIDE), []);
    return useSyncExternalStore(
        (changed) => {
            media.addEventListener("change", changed);
            return () => media.removeEventListener("change", changed);
        },
        () => media.matches,
    );
}

const CLASS = { "+": "added", "-": "removed", " ": "same", "…": "gap" } as const;

/** Lines that were read elsewhere, and can be chosen. */
export interface Given {
    lines: Line[];
    isNew: boolean;
    number: (line: Line) => ReactNode;
    on: Pick<HTMLAttributes<HTMLElement>, "onClick" | "onKeyDown">;
}

interface Props {
    diff: Diff;
    given?: Given | undefined;
    /** By how many lines earlier changes have moved what comes after them in the file. */
    moved?: number;
    /** Called with whether everything is drawn, and again when that changes. */
    onWhole?: ((isWhole: boolean) => void) | undefined;
}

/** One file's change. */
export function Changes({ diff, given, moved = 0, onWhole }: Props) {
    const lines = useMemo(() => given?.lines ?? linesOf(diff, moved), [diff, given, moved]);
    const isNew = given?.isNew ?? diff.oldText == null;
    const [most, setMost] = useState(MOST_LINES);
    const [isLong, setLong] = useState(false);
    const long = lines.filter(({ text }) => text.length > MOST_CHARACTERS).length;
    const isWhole = lines.length <= most && (isLong || long === 0);
    useEffect(() => onWhole?.(isWhole), [isWhole, onWhole]);
    const isWide = useWide();
    const shortOf = useRelative();
    const isSplit = useStore(look).changes === "split" && isWide && !isNew;
    const added = lines.filter((line) => line.sign === "+").length;
    const removed = lines.filter((line) => line.sign === "-").length;
    return (
        <figure className="changes">
            <figcaption>
                <bdi className="path" title={strict(diff.path)}>
                    {strict(shortOf(diff.path))}
                </bdi>
                <span className="counts">
                    {isNew && <span className="new">new file</span>}
                    {isWide && !isNew && (
                        <button
                            type="button"
                            className="layout"
                            onClick={() => setLook({ changes: isSplit ? "below" : "split" })}
                        >
                            {isSplit ? "Unified" : "Side by side"}
                        </button>
                    )}
                    <span className="plus">
                        +{added}
                        {diff.cut ? " and more" : ""}
                    </span>{" "}
                    <span className="minus">−{removed}</span>
                </span>
            </figcaption>
            <div className="lines" tabIndex={0} role="group" aria-label={`Changes of ${strict(diff.path)}`} {...given?.on}>
                <table>
                    <tbody>
                        {isSplit &&
                            paired(lines.slice(0, most)).map(([old, now], at) => (
                                <tr key={at} className={old?.sign === "…" ? "gap" : "both"}>
                                    <Half line={old} number={old?.before} isLong={isLong} />
                                    <Half line={now} number={now && (given?.number(now) ?? now.after)} isLong={isLong} />
                                </tr>
                            ))}
                        {!isSplit &&
                            lines.slice(0, most).map((line, at) => (
                                <tr key={at} className={CLASS[line.sign]}>
                                    <td className="number" aria-hidden={!given}>
                                        {given?.number(line) ?? line.after ?? line.before ?? ""}
                                    </td>
                                    <td className="sign">{line.sign === " " ? "" : line.sign}</td>
                                    <td className="line">
                                        <Text text={line.text} isLong={isLong} />
                                    </td>
                                </tr>
                            ))}
                    </tbody>
                </table>
            </div>
            {lines.length > most && (
                <button type="button" className="button small" onClick={() => setMost(most + MOST_LINES * 4)}>
                    Show more ({(lines.length - most).toLocaleString()} lines are left)
                </button>
            )}
            {long > 0 && !isLong && (
                <button type="button" className="button small" onClick={() => setLong(true)}>
                    {long === 1 ? "Show the whole of a long line" : `Show the whole of ${long.toLocaleString()} long lines`}
                </button>
            )}
            {diff.cut ? <p className="cut">{diff.cut.toLocaleString()} bytes are missing here.</p> : null}
        </figure>
    );
}

function Half({ line, number, isLong }: { line: Line | undefined; number: ReactNode; isLong: boolean }) {
    const of = line === undefined ? "none" : CLASS[line.sign];
    return (
        <>
            <td className={`number ${of}`} aria-hidden={typeof number !== "object"}>
                {number ?? ""}
            </td>
            <td className={`line half ${of}`}>
                {line && line.sign !== " " && <span className={line.sign === "…" ? "" : "hidden-label"}>{line.sign} </span>}
                {line && line.sign !== "…" && <Text text={line.text} isLong={isLong} />}
            </td>
        </>
    );
}

function Text({ text, isLong }: { text: string; isLong: boolean }) {
    const left = text.length - MOST_CHARACTERS;
    if (isLong || left <= 0) return strict(text);
    return (
        <>
            {strict(text.slice(0, MOST_CHARACTERS))}
            <span className="left">… {left.toLocaleString()} more characters</span>
        </>
    );
}
