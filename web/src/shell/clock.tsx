/** Says that the clock of this device is wrong: machines refuse what it signs then. */
import { clockAhead } from "../base/server-clock.ts";
import { useStore } from "../base/store.ts";
import { lasted } from "../runs/words.ts";

export function Clock() {
    const ahead = useStore(clockAhead);
    if (ahead === 0) return null;
    // To a minute: the server's time comes in whole seconds, and a moment late.
    const minutes = Math.round(Math.abs(ahead) / 60_000);
    const by = lasted(new Date(0).toISOString(), new Date(minutes * 60_000).toISOString());
    return (
        <p className="offline" role="status">
            <span>
                The clock of this device is {by} {ahead > 0 ? "ahead of" : "behind"} the server’s. Correct it: machines refuse
                what is signed with a wrong time.
            </span>
        </p>
    );
}
