/** A piece of code, coloured when the browser has time for it. */
import { useEffect, useState } from "react";
import type { Piece } from "./languages.ts";
import { Long } from "./long.tsx";
import { visible } from "./visible.ts";

/** Longer code stays as it is, in characters: colouring it takes long. */
const MOST = 12_000;
/** Code that is still being written is coloured when it has not changed for this many milliseconds. */
const REST_MS = 250;

/** Runs something when there is nothing else to do. Safari has no such call. */
function whenIdle(run: () => void): () => void {
    if (!("requestIdleCallback" in globalThis)) {
        const timer = setTimeout(run, 50);
        return () => clearTimeout(timer);
    }
    const handle = requestIdleCallback(run, { timeout: 2_000 });
    return () => cancelIdleCallback(handle);
}

export function Code({ text, language }: { text: string; language: string | undefined }) {
    const name = /^[\w+#.-]{1,20}/.exec(language ?? "")?.[0];
    const shown = visible(text);
    const [coloured, setColoured] = useState<{ of: string; pieces: Piece[] }>();
    useEffect(() => {
        if (name === undefined || shown.length > MOST) return undefined;
        let stop: (() => void) | undefined;
        const timer = setTimeout(() => {
            stop = whenIdle(
                () =>
                    void import("./languages.ts").then(({ piecesOf }) => {
                        const pieces = piecesOf(shown, name.toLowerCase());
                        if (pieces && stop) setColoured({ of: shown, pieces });
                    }),
            );
        }, REST_MS);
        return () => {
            clearTimeout(timer);
            stop?.();
            stop = undefined;
        };
    }, [shown, name]);
    const pieces = coloured?.of === shown ? coloured.pieces : undefined;
    const draw =
        pieces &&
        (() =>
            pieces.map(({ text: piece, className }, at) =>
                className === "" ? (
                    piece
                ) : (
                    <span key={at} className={className}>
                        {piece}
                    </span>
                ),
            ));
    return (
        <Long
            className="code"
            text={shown}
            label={name ? `Code, ${name}` : "Code"}
            language={name ?? ""}
            {...(draw && { draw })}
        />
    );
}
