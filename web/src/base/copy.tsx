/** Copies a text. Without a clipboard, as over plain HTTP or when it is forbidden, the text is selected, so that a person can copy it. */
import { type ReactNode, type RefObject, useEffect, useState } from "react";

/** How long the button shows the outcome, in milliseconds. */
const SAYS_MS = 4_000;
const COPIED = "Copied";
const SELECTED = "Selected: copy it now";
const FAILED = "This browser cannot copy it";

/** Copies it, and returns what to show. `of` is the element that shows the text. */
export async function copy(text: string, of: HTMLElement | null | undefined): Promise<string> {
    try {
        await navigator.clipboard.writeText(text);
        return COPIED;
    } catch {
        if (!of) return FAILED;
        of.focus();
        getSelection()?.selectAllChildren(of);
        return SELECTED;
    }
}

interface Props {
    text: string;
    /** The element that shows the text. */
    of: RefObject<HTMLElement | null>;
    className: string;
    children: ReactNode;
}

/** A button that shows the outcome for a while. */
export function CopyButton({ text, of, className, children }: Props) {
    const [said, setSaid] = useState<string>();
    useEffect(() => {
        if (said === undefined) return undefined;
        const timer = setTimeout(() => setSaid(undefined), SAYS_MS);
        return () => clearTimeout(timer);
    }, [said]);
    return (
        <button
            type="button"
            className={className}
            aria-live="polite"
            onClick={() => void copy(text, of.current).then(setSaid)}
        >
            {said ?? children}
        </button>
    );
}
