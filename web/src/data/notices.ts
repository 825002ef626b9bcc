/** Closes notifications of what was answered or seen. They name what the session wanted when they came. */
import type { NoticeData } from "../base/worker-words.ts";
import type { SessionRow } from "./row.ts";

const TOGETHER_MS = 300;
let timer: ReturnType<typeof setTimeout> | undefined;

export function closeAnswered(rows: readonly SessionRow[]): void {
  if (!("Notification" in globalThis) || Notification.permission !== "granted") return;
  clearTimeout(timer);
  const now = Date.now();
  timer = setTimeout(() => void close(rows, now).catch(() => undefined), TOGETHER_MS);
}

/** `since`: when the sessions were as in `rows`. What was pushed after that may be news to them. */
async function close(rows: readonly SessionRow[], since: number): Promise<void> {
  const registration = await navigator.serviceWorker?.getRegistration();
  for (const one of (await registration?.getNotifications()) ?? []) {
    const { sessionId, attention, at } = one.data as NoticeData;
    const row = rows.find(({ id }) => id === sessionId);
    if (row && row.attentionId !== attention && (at ?? 0) < since) one.close();
  }
}
