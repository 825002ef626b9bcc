/** Offers the recovery words to a password manager. */
import type { RefObject } from "react";
import { CopyButton } from "../base/copy.tsx";

/** `list` shows them. */
export function CopyWords({ words, list }: { words: readonly string[]; list: RefObject<HTMLElement | null> }) {
    return (
        <CopyButton text={words.join(" ")} of={list} className="button">
            Copy for a password manager
        </CopyButton>
    );
}
