/** Says once, over every screen, that this browser is full: the page works, and forgets what is new when it is left. */
import { hasRoom } from "../base/room.ts";
import { useStore } from "../base/store.ts";

export function Room() {
  const has = useStore(hasRoom);
  return (
    <div role="status">
      {!has && <p className="offline"><span>This browser is full. The page works, and keeps nothing new: free some room on the disk before you close it.</span></p>}
    </div>
  );
}
