/** What was typed and not sent, by session. It stays in this tab only: storage that outlives it would keep it in the clear. */
const drafts = new Map<string, string>();
const MOST = 200;

export function draftOf(session: string): string {
  return drafts.get(session) ?? "";
}

export function saveDraft(session: string, text: string): void {
  drafts.delete(session);
  if (text !== "") drafts.set(session, text);
  for (const oldest of drafts.keys()) {
    if (drafts.size <= MOST) break;
    drafts.delete(oldest);
  }
}
