/** What the session is doing, in a word. */
import type { SessionRow } from "../data/row.ts";
import type { State } from "./types.ts";

const PHASES: Record<string, [word: string, dot: string]> = {
    starting: ["Starting", "working"],
    idle: ["Ready", "idle"],
    working: ["Working", "working"],
    waiting: ["Waits for you", "ask"],
    "waiting for others": ["Waits for an answer", ""],
    parked: ["Asleep until you write", ""],
    ended: ["Ended", ""],
};

interface Props {
    row: SessionRow | undefined;
    state: State | undefined;
    mayAnswer: boolean;
}

export function Phase({ row, state, mayAnswer }: Props) {
    const phase = state?.phase === "waiting" && !mayAnswer ? "waiting for others" : state?.phase;
    const [word, dot] =
        row && !row.online && state?.phase !== "ended" ? ["Machine away", ""] : (PHASES[phase ?? ""] ?? ["", ""]);
    if (word === "") return null;
    return (
        <span className="phase" role="status">
            <span className={`dot ${dot}`} />
            {word}
        </span>
    );
}
