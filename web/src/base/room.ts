/** Whether this browser had room for what the page has written last. */
import { Store } from "./store.ts";

export const hasRoom = new Store(true);

export const setRoom = (has: boolean): void => hasRoom.set(has);
