/** Prompts that were sent and not acknowledged: the machine may have them. With the same id they are never done twice. */
import type { Attachment } from "@ensemble/client/transcript";
import { Store } from "../base/store.ts";
import { forget, keep, keptNames, recall } from "./kept.ts";

export interface Unsent {
  text: string;
  when: "now" | "next";
  localId: string;
  attachments?: Attachment[] | undefined;
  /** Why; absent while it is on its way. */
  error?: string | undefined;
  /** When it was sent at first, as `Date.now()`. */
  since: number;
}

/** By session. */
export const unsent = new Store<ReadonlyMap<string, readonly Unsent[]>>(new Map());
const MOST = 50;

const prefixOf = (session: string): string => `unsent ${session} `;

/** Keeps it, or what is new of it. */
export function keepUnsent(session: string, one: Unsent): void {
  put(session, one);
  void keep("typed", prefixOf(session) + one.localId, one);
}

export function dropUnsent(session: string, localId: string): void {
  unsent.update((before) => {
    const left = (before.get(session) ?? []).filter((one) => one.localId !== localId);
    const after = new Map(before);
    if (left.length > 0) after.set(session, left);
    else after.delete(session);
    return after;
  });
  void forget(prefixOf(session) + localId);
}

/** What a page that was closed has left unsent. Whether it has come through, the transcript shows. */
export async function recallUnsent(session: string): Promise<Unsent[]> {
  const all = await Promise.all((await keptNames(prefixOf(session))).map((name) => recall<Unsent>(name)));
  const known = new Set((unsent.get().get(session) ?? []).map(({ localId }) => localId));
  return all.flatMap((one) => (one && !known.has(one.value.localId) ? [one.value] : []));
}

/** The texts of all prompts of every session that were sent and not acknowledged. */
export async function allUnsent(): Promise<string[]> {
  const all = await Promise.all((await keptNames("unsent ")).map((name) => recall<Unsent>(name)));
  return all.flatMap((one) => (one ? [one.value.text] : []));
}

function put(session: string, one: Unsent): void {
  unsent.update((before) => {
    const others = (before.get(session) ?? []).filter(({ localId }) => localId !== one.localId);
    return new Map(before).set(session, [...others, one].slice(-MOST));
  });
}
