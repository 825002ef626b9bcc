/** What people may do with a session that is shared with them. */
import type { May } from "@ensemble/client/transcript";
import { useId } from "react";
import { Choice } from "../base/field.tsx";
import type { Level, ShareRow } from "../data/shares.ts";

/** Each says whether the person may answer what the agent asks. */
const LEVELS: Record<Level, [name: string, hint: string]> = {
    view: ["Read", "They see the session live. They cannot write in it or answer the agent’s requests."],
    prompt: ["Read and prompt", "They also write to the agent. They cannot answer its requests."],
    approve: ["Read, prompt and approve", "They also answer the agent’s requests, for example to run a command."],
};

/** After a name, as in "Ann can read". */
export const CAN: Record<Level, string> = {
    view: "can read",
    prompt: "can read and prompt, but not answer requests",
    approve: "can read, prompt and answer requests",
};

/** What a person of the list can do. `may` is what the session's machine does for them; undefined where there is no machine. */
export function canDo(level: ShareRow["level"], may: May | undefined): string {
    if (level === "admin")
        return may === "approve"
            ? "can read, prompt, answer requests and share"
            : "can read, prompt and share, but not answer requests";
    if (level === "view") return CAN.view;
    return may === "approve" ? CAN.approve : CAN.prompt;
}

export function Levels({ level, onLevel }: { level: Level; onLevel: (level: Level) => void }) {
    const name = useId();
    return (
        <fieldset className="question">
            <legend>What they can do</legend>
            {(Object.keys(LEVELS) as Level[]).map((one) => (
                <Choice
                    key={one}
                    className="choice"
                    oneOf={name}
                    label={LEVELS[one][0]}
                    hint={LEVELS[one][1]}
                    checked={one === level}
                    onChange={() => onLevel(one)}
                />
            ))}
            {level !== "view" && <small>Anyone who can prompt an agent that edits freely controls this machine.</small>}
        </fieldset>
    );
}
