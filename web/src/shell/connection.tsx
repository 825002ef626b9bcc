/** Shows over every screen that the server cannot be reached and is being retried, and what a person can do. */
import { useStore } from "../base/store.ts";
import { clock } from "../base/words.ts";
import { connection, heldBack } from "../data/connection.ts";

export function Connection() {
    const { isLost, since, what, todo } = useStore(connection);
    const isHeldBack = useStore(heldBack);
    // The region is there before it says something: screen readers read what changes in it.
    return (
        <div role="status">
            {!isLost && isHeldBack && <p className="offline plain">This address holds live text back</p>}
            {isLost && (
                <p className="offline">
                    <span>
                        {what}
                        {since === undefined ? "" : ` since ${clock(since)}`}. {todo}{" "}
                        <span className="optional">{since === undefined ? "" : "You see what was known then. "}</span>It is
                        retried automatically.
                    </span>
                </p>
            )}
        </div>
    );
}
