/** Output of a terminal: its colours stay, everything else that it would do to a terminal is left out. */
import Anser from "anser";
import { Long } from "./long.tsx";
import { visible } from "./visible.ts";

// Strings of control (OSC, DCS and their kin) with what they carry, then each sequence but those that set colours (ECMA-48, section 5).
const STRINGS = /\u001b[\]PX^_][^\u0007\u001b\u009c]{0,4096}(?:\u0007|\u001b\\|\u009c|$)/g;
const SEQUENCES = /\u001b\[[0-9;:<=>?]*[ -/]*([@-~])|\u001b[ -/]*[0-Z\\^-~]/g;

/** The text with nothing but colours in it. A line that was written over shows as it was at last. */
export function onlyColours(text: string): string {
    return text
        .replace(STRINGS, "")
        .replace(SEQUENCES, (whole, end: string | undefined) => (end === "m" ? whole : ""))
        .replaceAll("\r\n", "\n")
        .replace(/^.*\r(?!$)/gm, "");
}

/** The text without colours, either. */
export function plain(text: string): string {
    return onlyColours(text).replace(/\u001b\[[^m]*m/g, "");
}

function draw(piece: string) {
    return Anser.ansiToJson(piece, { use_classes: true, remove_empty: true }).map((one, at) => {
        const classes = [one.fg && `fg-${one.fg.replace(/^ansi-/, "")}`, ...(one.decorations ?? [])].filter(Boolean).join(" ");
        const text = visible(one.content);
        return classes ? (
            <span key={at} className={classes}>
                {text}
            </span>
        ) : (
            text
        );
    });
}

/** What a command has printed. */
export function Terminal({ text, label = "Output" }: { text: string; label?: string }) {
    return <Long className="terminal" text={onlyColours(text)} label={label} draw={draw} />;
}
