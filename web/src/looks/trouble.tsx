/** That a machine is asked, and what went wrong. */
import type { Seen } from "./use-look.ts";

export function Trouble({ seen }: { seen: Pick<Seen<unknown>, "value" | "error" | "isReading" | "again"> }) {
    if (seen.error !== undefined)
        return (
            <div className="banner bad" role="alert">
                <span>{seen.error}</span>
                <button
                    type="button"
                    className="button small"
                    aria-disabled={seen.isReading}
                    onClick={() => seen.isReading || seen.again()}
                >
                    Try again
                </button>
            </div>
        );
    if (seen.value !== undefined) return null;
    return (
        <p className="older" role="status">
            Asking the machine…
        </p>
    );
}

export function Again({ seen, onAgain }: { seen: Pick<Seen<unknown>, "value" | "isReading">; onAgain: () => void }) {
    if (seen.value === undefined) return null;
    return (
        <button
            type="button"
            className="button small plain"
            aria-disabled={seen.isReading}
            onClick={() => seen.isReading || onAgain()}
        >
            {seen.isReading ? "Reading…" : "Read again"}
        </button>
    );
}
