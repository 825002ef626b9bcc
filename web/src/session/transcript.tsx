/** The transcript: only the rows near the window are drawn, and it stays at its end while it is there. */
import { memo, type ReactNode, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Virtualizer, type VirtualizerHandle } from "virtua";
import { Icon } from "../base/icons.tsx";
import { Markdown } from "../text/markdown.tsx";
import { oneLine } from "../text/visible.ts";
import { answerOf, answersIn, inOrder, marksOf } from "./order.ts";
import { isShown, Row, saidOf } from "./row.tsx";
import type { Item } from "./types.ts";

/** Within this many pixels of the end counts as being there. */
const NEAR = 48;

/** The newest line of a thought: the whole comes with its message. */
function lastLine(text: string): string {
    return oneLine(text.trimEnd().split("\n").pop() ?? "", 160);
}

interface Props {
    items: readonly Item[];
    /** Texts that are being written, by their part. */
    growing: readonly { part: number; text: string; isThought: boolean }[];
    turnId: string | undefined;
    isWorking: boolean;
    hasOlder: boolean;
    loadOlder: () => Promise<void>;
    nameOf: (user: string) => string;
    /** The machine of the session is offline. */
    isAway: boolean;
    /** What can be done with a prompt that waits. */
    below: ((waiting: Item) => ReactNode) | undefined;
}

function isQueued({ shown }: Item): boolean {
    return shown.type === "prompt" && (shown.taken.is === "queued" || shown.taken.is === "not_yet");
}

function isPrompt(item: Item | undefined): boolean {
    return item?.shown.type === "prompt";
}

export const Transcript = memo(function Transcript({
    items,
    growing,
    turnId,
    isWorking,
    hasOlder,
    loadOlder,
    nameOf,
    isAway,
    below,
}: Props) {
    const scroller = useRef<HTMLDivElement>(null);
    const list = useRef<VirtualizerHandle>(null);
    const [isAtEnd, setAtEnd] = useState(true);
    const stays = useRef(true);
    const lastTop = useRef(0);
    /** A person has scrolled since it was last put to its end. */
    const moved = useRef(false);
    const isLoading = useRef(false);
    const [loading, setLoading] = useState(false);

    const answers = answersIn(items);
    const marks = marksOf(items, (card) => saidOf(card, undefined, nameOf));
    const all = inOrder(items).filter((item) => isShown(item) && !marks.onOther.has(item.id));
    // What waits for its turn stands where it will be done: after what is being written.
    const rows = all.filter((item) => !isQueued(item));
    const queue = all.filter(isQueued);
    // Output of a tool grows in its row, everything else at the end.
    const tools = new Set<number>();
    for (const row of rows) {
        if (row.shown.type === "tool" && row.shown.call.turnId === turnId && row.shown.call.part !== undefined)
            tools.add(row.shown.call.part);
    }
    const growingOf = (item: Item) =>
        item.shown.type === "tool" && item.shown.call.turnId === turnId
            ? growing.find((one) => item.shown.type === "tool" && one.part === item.shown.call.part)?.text
            : undefined;
    const tail = growing.filter((one) => !tools.has(one.part));
    const firstId = rows[0]?.id;
    const before = useRef(firstId);
    const isShift = before.current !== undefined && firstId !== undefined && firstId < before.current;
    useLayoutEffect(() => {
        before.current = firstId;
    }, [firstId]);

    const toEnd = useCallback(() => {
        const element = scroller.current;
        if (!element) return;
        moved.current = false;
        element.scrollTop = element.scrollHeight;
    }, []);
    useLayoutEffect(() => {
        if (stays.current) toEnd();
    });
    // Rows get their heights after they are drawn.
    useEffect(() => {
        const content = scroller.current?.firstElementChild;
        if (!content) return undefined;
        const observer = new ResizeObserver(() => {
            if (stays.current) toEnd();
        });
        observer.observe(content);
        if (scroller.current) observer.observe(scroller.current);
        return () => observer.disconnect();
    }, [toEnd]);

    const byPerson = () => {
        moved.current = true;
    };
    const scrolled = () => {
        const element = scroller.current;
        if (!element) return;
        const isNear = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
        // Only a move up leaves the end. Rows that are drawn for the first time move it, too.
        const isMoveUp = element.scrollTop < lastTop.current - 1 && moved.current;
        lastTop.current = element.scrollTop;
        if (isNear) stays.current = true;
        else if (isMoveUp) stays.current = false;
        setAtEnd(isNear || stays.current);
        if (element.scrollTop < 800 && hasOlder && !isLoading.current) {
            isLoading.current = true;
            setLoading(true);
            void loadOlder().finally(() => {
                isLoading.current = false;
                setLoading(false);
            });
        }
    };

    return (
        <div className="transcript">
            <div
                className="scroller"
                ref={scroller}
                onScroll={scrolled}
                onWheel={byPerson}
                onTouchMove={byPerson}
                onKeyDown={byPerson}
                onPointerDown={byPerson}
                tabIndex={0}
                role="log"
                aria-label="What was said"
                aria-live="off"
            >
                <div>
                    {(hasOlder || loading) && (
                        <div className="older">
                            {loading ? (
                                "Loading earlier messages…"
                            ) : (
                                <button type="button" className="button small" onClick={() => void loadOlder()}>
                                    Show earlier messages
                                </button>
                            )}
                        </div>
                    )}
                    <Virtualizer ref={list} scrollRef={scroller} shift={isShift} bufferSize={600}>
                        {rows.map((item, at) => (
                            <div key={item.id} className={at === 0 && !hasOlder ? "turn-item first" : "turn-item"}>
                                {isPrompt(rows[at - 1]) && !isPrompt(item) && <h2 className="hidden-label">The agent</h2>}
                                <Row
                                    item={item}
                                    nameOf={nameOf}
                                    growing={growingOf(item)}
                                    isAway={isAway}
                                    answer={answerOf(item, answers)}
                                    mark={marks.said.get(item.id)}
                                />
                            </div>
                        ))}
                    </Virtualizer>
                    {tail.map((one) => (
                        <div key={one.part} className="turn-item" dir="auto">
                            {one.isThought ? (
                                <p className="asked-line">
                                    <Icon name="think" size={14} /> {lastLine(one.text)}
                                </p>
                            ) : (
                                <Markdown text={one.text} isGrowing />
                            )}
                        </div>
                    ))}
                    {isWorking && tail.length === 0 && (
                        <div className="turn-item">
                            <p className="asked-line">
                                <span className="dot working" /> Working…
                            </p>
                        </div>
                    )}
                    {queue.map((item) => (
                        <div key={item.id} className="turn-item">
                            <Row
                                item={item}
                                nameOf={nameOf}
                                growing={undefined}
                                isAway={isAway}
                                answer={undefined}
                                mark={undefined}
                            />
                            {below?.(item)}
                        </div>
                    ))}
                </div>
            </div>
            {!isAtEnd && (
                <button
                    type="button"
                    className="button small to-end"
                    onClick={() => {
                        stays.current = true;
                        toEnd();
                    }}
                >
                    <Icon name="down" size={14} /> To the end
                </button>
            )}
        </div>
    );
});
