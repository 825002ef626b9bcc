/** Text as it is, in pieces: only what was asked for is drawn, because a megabyte in one line holds up any browser. */
import { type ReactNode, useRef, useState } from "react";
import { CopyButton } from "../base/copy.tsx";

const FIRST = 16_000;
const STEP = 200_000;

interface Props {
    text: string;
    className: string;
    label: string;
    /** What a piece of code is written in: it has a line of its own, with a button that copies the code. "" when it is not known. */
    language?: string | undefined;
    /** How a piece is drawn. Absent: as plain text. */
    draw?: (piece: string) => ReactNode;
}

/** A piece of monospaced text that scrolls in itself. */
export function Long({ text, className, label, language, draw }: Props) {
    const [most, setMost] = useState(FIRST);
    const shown = useRef<HTMLPreElement>(null);
    const left = text.length - most;
    const piece = left > 0 ? text.slice(0, most) : text;
    return (
        <div className={`long ${className}`}>
            {language !== undefined && (
                <div className="above">
                    <span className="language" aria-hidden="true">
                        {language}
                    </span>
                    <CopyButton text={text} of={shown} className="button small plain">
                        Copy<span className="hidden-label"> code</span>
                    </CopyButton>
                </div>
            )}
            <pre ref={shown} tabIndex={0} role="group" aria-label={label}>
                {draw ? draw(piece) : piece}
            </pre>
            {left > 0 && (
                <button type="button" className="button small" onClick={() => setMost(most + STEP)}>
                    Show more ({left.toLocaleString()} characters are left)
                </button>
            )}
        </div>
    );
}
