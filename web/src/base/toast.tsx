/** A line at the edge of the screen that says what was done, and takes it back. */
import { Store, useStore } from "./store.ts";

interface Toast {
    id: number;
    text: string;
    undo: (() => void) | undefined;
    undoLabel: string;
}

const LASTS_MS = 8_000;
const toasts = new Store<readonly Toast[]>([]);
let count = 0;

/** Shows a line for a while. */
export function say(text: string, undo?: () => void, undoLabel = "Undo"): void {
    const id = ++count;
    const end = (): void => toasts.update((all) => all.filter((one) => one.id !== id));
    const back =
        undo &&
        ((): void => {
            end();
            undo();
        });
    toasts.update((all) => [...all.slice(-2), { id, text, undo: back, undoLabel }]);
    // Nothing goes from under a pointer or the focus.
    const over = (): void => {
        if (document.querySelector(".toast:hover,.toast:focus-within")) setTimeout(over, LASTS_MS);
        else end();
    };
    setTimeout(over, LASTS_MS);
}

export function Toasts() {
    const all = useStore(toasts);
    return (
        <div className="toasts" role="status">
            {all.map((one) => (
                <div key={one.id} className="toast">
                    <span>{one.text}</span>
                    {one.undo && (
                        <button type="button" className="button small" onClick={one.undo}>
                            {one.undoLabel}
                        </button>
                    )}
                </div>
            ))}
        </div>
    );
}
