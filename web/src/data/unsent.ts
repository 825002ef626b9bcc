/** Prompts that were sent, and of which nothing came back: the machine may have them. With the same id they are never done twice. */
import { Store } from "../base/store.ts";

export interface Unsent {
  text: string;
  when: "now" | "next";
  localId: string;
  /** Why; absent while it is on its way. */
  error?: string | undefined;
}

/** By session. They stay in this tab only, as drafts do. */
export const unsent = new Store<ReadonlyMap<string, readonly Unsent[]>>(new Map());
const MOST = 50;

/** Keeps it, or what is new of it. */
export function keepUnsent(session: string, one: Unsent): void {
  unsent.update((before) => {
    const others = (before.get(session) ?? []).filter(({ localId }) => localId !== one.localId);
    return new Map(before).set(session, [...others, one].slice(-MOST));
  });
}

export function dropUnsent(session: string, localId: string): void {
  unsent.update((before) => {
    const left = (before.get(session) ?? []).filter((one) => one.localId !== localId);
    const after = new Map(before);
    if (left.length > 0) after.set(session, left);
    else after.delete(session);
    return after;
  });
}
