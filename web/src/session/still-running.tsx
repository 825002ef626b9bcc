/** Commands of the agent that have outlived their turn: how many, which, and a way to end them. */
import { oneLine } from "../text/visible.ts";

/** Commands that are named at most. */
const MOST_NAMED = 16;

interface Props {
    commands: readonly string[];
    /** Absent where this person cannot end them, and during a turn, which would end as well. */
    onEnd: (() => void) | undefined;
}

export function StillRunning({ commands, onEnd }: Props) {
    if (commands.length === 0) return null;
    const names = commands.slice(0, MOST_NAMED).map((command) => oneLine(command, 200));
    return (
        <div className="banner still-running" role="status">
            <details>
                <summary>
                    {commands.length === 1 ? "1 command still runs" : `${commands.length} commands still run`}:{" "}
                    <bdi>
                        <code>{names.join(", ")}</code>
                    </bdi>
                </summary>
                <ul tabIndex={0} aria-label="Commands that still run">
                    {names.map((name, at) => (
                        <li key={at}>
                            <bdi>
                                <code>{name}</code>
                            </bdi>
                        </li>
                    ))}
                </ul>
            </details>
            {onEnd && (
                <button type="button" className="button small" onClick={onEnd}>
                    End
                </button>
            )}
        </div>
    );
}
