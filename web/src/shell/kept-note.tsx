/** Says that what is shown was kept: since when, and that newer things are missing. */
import { clock } from "../base/words.ts";

export function KeptNote({ at }: { at: string }) {
    return (
        <p className="kept-note" role="status">
            Offline copy from {clock(at)}.
        </p>
    );
}
