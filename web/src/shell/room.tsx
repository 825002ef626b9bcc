/** Shows once, over every screen, that the browser's storage is full: the page works, and loses what is new when it is left. */
import { hasRoom } from "../base/room.ts";
import { useStore } from "../base/store.ts";

export function Room() {
    const has = useStore(hasRoom);
    return (
        <div role="status">
            {!has && (
                <p className="offline">
                    <span>
                        This browser has no storage left. The page works but cannot save anything new: free some disk space
                        before you close it.
                    </span>
                </p>
            )}
        </div>
    );
}
