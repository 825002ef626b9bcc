/** Closes notifications of what was answered or seen. They name what the session wanted when they came. */
import type { NoticeData } from "../base/worker-words.ts";
import { mine } from "./account.ts";
import type { SessionRow } from "./row.ts";

const TOGETHER_MS = 300;
let timer: ReturnType<typeof setTimeout> | undefined;

export function closeAnswered(rows: readonly SessionRow[]): void {
  if (!("Notification" in globalThis) || Notification.permission !== "granted") return;
  clearTimeout(timer);
  timer = setTimeout(() => void close(rows).catch(() => undefined), TOGETHER_MS);
}

/** The rows may be older than what was pushed, so the server is asked before a notification is closed. */
async function close(rows: readonly SessionRow[]): Promise<void> {
  const registration = await navigator.serviceWorker?.getRegistration();
  for (const one of (await registration?.getNotifications()) ?? []) {
    const { sessionId, attention } = one.data as NoticeData;
    const row = rows.find(({ id }) => id === sessionId);
    if (!row || row.attentionId === attention) continue;
    const now = await mine().sessions.read(row.id);
    if (now.attention?.id !== attention) one.close();
  }
}
