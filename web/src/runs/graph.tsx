/** The tasks of a run in columns: what depends on nothing stands first. */
import { useMemo } from "react";
import type { Task } from "../data/runs.ts";
import { oneLine } from "../text/visible.ts";
import { DOTS, TASK_WORDS } from "./words.ts";

const WIDTH = 190;
const HEIGHT = 44;
const GAP_X = 46;
const GAP_Y = 12;
/** More tasks are listed and not drawn. */
export const MOST_DRAWN = 150;

interface Placed {
    task: Task;
    x: number;
    y: number;
}

function place(tasks: readonly Task[]): Map<string, Placed> {
    const byId = new Map(tasks.map((task) => [task.id as string, task]));
    const levels = new Map<string, number>();
    const levelOf = (task: Task, seen: ReadonlySet<string>): number => {
        const known = levels.get(task.id);
        if (known !== undefined) return known;
        // The server refuses cycles. If one comes all the same, it must not cause an endless loop.
        if (seen.has(task.id)) return 0;
        const inside = new Set(seen).add(task.id);
        const level = Math.max(
            0,
            ...task.dependsOn.map((id) => {
                const before = byId.get(id);
                return before ? levelOf(before, inside) + 1 : 0;
            }),
        );
        levels.set(task.id, level);
        return level;
    };
    const filled = new Map<number, number>();
    return new Map(
        tasks.map((task) => {
            const level = levelOf(task, new Set());
            const row = filled.get(level) ?? 0;
            filled.set(level, row + 1);
            return [task.id as string, { task, x: 2 + level * (WIDTH + GAP_X), y: 2 + row * (HEIGHT + GAP_Y) }];
        }),
    );
}

export function Graph({
    tasks,
    chosen,
    onChoose,
}: {
    tasks: readonly Task[];
    chosen: string | undefined;
    onChoose: (id: string) => void;
}) {
    const placed = useMemo(() => place(tasks), [tasks]);
    const all = [...placed.values()];
    const width = Math.max(...all.map(({ x }) => x)) + WIDTH + 2;
    const height = Math.max(...all.map(({ y }) => y)) + HEIGHT + 2;
    return (
        <div className="graph" tabIndex={0} role="group" aria-label="The tasks and what they depend on">
            <div className="plane" style={{ width, height }}>
                <svg width={width} height={height} aria-hidden="true">
                    {all.flatMap(({ task, x, y }) =>
                        task.dependsOn.map((id) => {
                            const from = placed.get(id);
                            if (!from) return null;
                            const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, x, y + HEIGHT / 2];
                            return (
                                <path
                                    key={`${id} ${task.id}`}
                                    d={`M${x1} ${y1}C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}`}
                                />
                            );
                        }),
                    )}
                </svg>
                {all.map(({ task, x, y }) => (
                    <button
                        key={task.id}
                        type="button"
                        className={chosen === task.id ? "node chosen" : "node"}
                        style={{ left: x, top: y, width: WIDTH, height: HEIGHT }}
                        aria-pressed={chosen === task.id}
                        aria-label={`${nameOf(task)}, ${TASK_WORDS[task.status] ?? task.status}`}
                        onClick={() => onChoose(task.id)}
                    >
                        <span className={`dot ${DOTS[task.status] ?? ""}`} />
                        <bdi>{nameOf(task)}</bdi>
                    </button>
                ))}
            </div>
        </div>
    );
}

/** The name of a task. */
export function nameOf(task: Task): string {
    return oneLine(task.title ?? task.taskKey ?? task.prompt ?? `Task ${task.ref}`, 120);
}
