/** What was typed and not sent, by session. It outlives a reload, and a day without a connection. */
import { forget, keep, keptNames, recall } from "./kept.ts";

const drafts = new Map<string, string>();
const MOST = 200;
/** What is typed is kept after a pause of this many milliseconds, and when the page is left. */
const REST_MS = 400;
const due = new Map<string, ReturnType<typeof setTimeout>>();

const nameOf = (session: string): string => `draft ${session}`;

/** What this tab knows of it. Undefined: what was kept has to be read. */
export function draftOf(session: string): string | undefined {
  return drafts.get(session);
}

/** What was typed here before this page was opened. */
export async function keptDraft(session: string): Promise<string> {
  const found = await recall<string>(nameOf(session));
  const text = typeof found?.value === "string" ? found.value : "";
  if (!drafts.has(session)) drafts.set(session, text);
  return drafts.get(session) ?? text;
}

/** All that was typed and not sent, of every session. */
export async function allDrafts(): Promise<string[]> {
  const sessions = (await keptNames(nameOf(""))).map((name) => name.slice(nameOf("").length));
  const all = await Promise.all(
    [...new Set([...drafts.keys(), ...sessions])].map((session) => drafts.get(session) ?? keptDraft(session)),
  );
  return all.filter((text) => text !== "");
}

export function saveDraft(session: string, text: string): void {
  drafts.delete(session);
  drafts.set(session, text);
  for (const oldest of drafts.keys()) {
    if (drafts.size <= MOST) break;
    drafts.delete(oldest);
  }
  clearTimeout(due.get(session));
  // What was sent is gone at once.
  if (text === "") write(session);
  else
    due.set(
      session,
      setTimeout(() => write(session), REST_MS),
    );
}

function write(session: string): void {
  clearTimeout(due.get(session));
  due.delete(session);
  const text = drafts.get(session) ?? "";
  void (text === "" ? forget(nameOf(session)) : keep("typed", nameOf(session), text));
}

if (typeof document !== "undefined") {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) for (const session of [...due.keys()]) write(session);
  });
  addEventListener("pagehide", () => {
    for (const session of [...due.keys()]) write(session);
  });
}
