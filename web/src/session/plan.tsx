/** What the agent is going to do. */
import { Icon } from "../base/icons.tsx";
import { oneLine } from "../text/visible.ts";
import type { PlanEntry } from "./types.ts";

const WORDS: Record<string, string> = { completed: "done", in_progress: "under way", pending: "to do" };

export function Plan({ entries }: { entries: readonly PlanEntry[] }) {
    const done = entries.filter((one) => one.status === "completed").length;
    const current = entries.find((one) => one.status === "in_progress") ?? entries.find((one) => one.status !== "completed");
    if (entries.length === 0) return null;
    return (
        <details className="plan">
            <summary>
                <Icon name="chevron" size={13} />
                <span className="now">
                    <bdi>{current ? oneLine(current.content, 160) : "The plan is done"}</bdi>
                </span>
                <span>
                    {done} of {entries.length}
                </span>
            </summary>
            <ol>
                {entries.slice(0, 200).map((one, at) => (
                    <li key={at} className={one.status}>
                        <span className="mark" />
                        <span>
                            <bdi>{oneLine(one.content, 500)}</bdi>
                            <span className="hidden-label">, {WORDS[one.status] ?? "to do"}</span>
                        </span>
                    </li>
                ))}
            </ol>
        </details>
    );
}
