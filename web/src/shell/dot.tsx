/** The state of a session as a dot, with its words for those who cannot see it. */
import { isNew, type SessionRow, stateOf, WORDS } from "../data/row.ts";

const CLASS = { ask: "ask", waits: "", working: "working", idle: "idle", failed: "bad", away: "", ended: "" };

export function Dot({ row }: { row: SessionRow }) {
    const state = stateOf(row);
    const isFinished = isNew(row) && row.attention === "finished" && state !== "working";
    const word = isFinished ? "Finished" : WORDS[state];
    return (
        <>
            <span className={`dot ${isFinished ? "finished" : CLASS[state]}`} title={word} aria-hidden="true" />
            <span className="hidden-label">{word}: </span>
        </>
    );
}
