/** A tool call of the agent: one line with its state, and what it did when it is opened. */
import { memo, useContext, useState } from "react";
import { Icon, type IconName } from "../base/icons.tsx";
import { Changes } from "../text/changes.tsx";
import { Long } from "../text/long.tsx";
import { Terminal } from "../text/terminal.tsx";
import { oneLine, visible } from "../text/visible.ts";
import { Directory, relative, titleWith } from "./paths.ts";
import type { ToolCall, ToolContent } from "./types.ts";

const ICONS: Record<string, IconName> = {
    read: "read",
    edit: "edit",
    delete: "edit",
    move: "edit",
    search: "search",
    execute: "run",
    think: "think",
    fetch: "fetch",
};
const STATES: Record<string, string> = { pending: "waits", failed: "failed", interrupted: "interrupted" };

const lineFeeds = (text: string): number => text.split("\n").length - 1;

/** By how many lines the changes before each one have moved it in its file. */
function movesIn(content: readonly ToolContent[]): number[] {
    const moves = new Map<string, number>();
    return content.map((one) => {
        if (one.type !== "diff") return 0;
        const moved = moves.get(one.path) ?? 0;
        moves.set(one.path, moved + lineFeeds(one.newText) - lineFeeds(one.oldText ?? ""));
        return moved;
    });
}

function Content({ content, moved }: { content: ToolContent; moved: number }) {
    switch (content.type) {
        case "diff":
            return <Changes diff={content} moved={moved} />;
        case "terminal":
            return (
                <>
                    <Terminal text={content.output} />
                    {content.cut ? (
                        <p className="note">{content.cut.toLocaleString()} bytes before it are missing here.</p>
                    ) : null}
                    {content.exitStatus?.exitCode ? <p className="note">Exit code {content.exitStatus.exitCode}</p> : null}
                </>
            );
        case "content":
            return content.content.type === "text" ? (
                <>
                    <Terminal text={content.content.text} label="Text" />
                    {content.cut ? <p className="note">{content.cut.toLocaleString()} bytes are missing here.</p> : null}
                </>
            ) : (
                <p className="note">This version cannot show this.</p>
            );
        default:
            return <p className="note">This needs a newer version of the page.</p>;
    }
}

/** `growing` is the output as far as live frames have shown it. */
export const Tool = memo(function Tool({
    call,
    growing,
    mark,
}: {
    call: ToolCall;
    growing: string | undefined;
    mark: string | undefined;
}) {
    const [isOpen, setOpen] = useState(false);
    const isOver = call.status === "completed" || call.status === "failed" || call.status === "interrupted";
    const kind = call.kind ?? "other";
    const directory = useContext(Directory);
    const places = call.locations ?? [];
    const title = oneLine(
        titleWith(call.title ?? "A tool", kind === "execute" ? [] : places.map(({ path }) => path), directory),
        300,
    );
    const content = call.content ?? [];
    const moves = isOpen ? movesIn(content) : [];
    return (
        <details
            className={call.parentToolCallId ? "tool inside" : "tool"}
            open={isOpen}
            onToggle={(event) => setOpen(event.currentTarget.open)}
        >
            <summary>
                <span className="kind">
                    <Icon name={ICONS[kind] ?? "tool"} />
                </span>
                <bdi className={kind === "execute" ? "title code" : "title"}>{title}</bdi>
                {mark !== undefined && <span className="mark">{mark}</span>}
                <span className={`state ${call.status ?? ""}`}>
                    {call.status === "completed" && <Icon name="check" size={14} />}
                    {call.status === "completed" ? <span className="hidden-label">done</span> : STATES[call.status ?? ""]}
                    {!isOver && call.status !== "pending" && (
                        <>
                            <span className="spinner" />
                            <span className="hidden-label">running</span>
                        </>
                    )}
                </span>
            </summary>
            {isOpen && (
                <div className="body">
                    {places.length > 0 && (
                        <p className="note">
                            {places.slice(0, 20).map((place, at) => (
                                <bdi key={at}>
                                    <code>
                                        {visible(relative(place.path, directory))}
                                        {place.line ? `:${place.line}` : ""}
                                    </code>{" "}
                                </bdi>
                            ))}
                        </p>
                    )}
                    {title.length >= 299 && <Long className="plain" text={visible(call.title ?? "")} label="Title" />}
                    {content.map((one, at) => (
                        <Content key={at} content={one} moved={moves[at] ?? 0} />
                    ))}
                    {growing !== undefined && !isOver && <Terminal text={growing} label="Output so far" />}
                    {content.length === 0 && growing === undefined && (
                        <p className="note">{isOver ? "No output." : "No output yet."}</p>
                    )}
                </div>
            )}
        </details>
    );
});
