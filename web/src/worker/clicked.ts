/** What a person does with a notification: they open it or deny what it shows. To allow something, they have to see the whole of it. */
import type { NoticeData } from "../base/worker-words.ts";
import { textOf } from "../data/failure.ts";
import { account, soon } from "./account.ts";

declare const self: ServiceWorkerGlobalScope;

export async function clicked(notification: Notification, action: string): Promise<void> {
  const kept = notification.data as NoticeData;
  notification.close();
  if (action !== "deny") return open(kept.path);
  try {
    await soon(deny(kept));
  } catch (error) {
    await self.registration.showNotification("Not denied", {
      body: `${textOf(error)} Open it, and answer there.`,
      tag: notification.tag,
      data: { ...kept, asked: undefined },
    });
  }
}

/** The answer names the digest of what was shown, so it is no answer to anything else. */
async function deny({ sessionId, asked }: NoticeData): Promise<void> {
  if (sessionId === undefined || !asked) throw new Error("It is not known what was asked.");
  const live = await (await account()).sessions.open(sessionId);
  const card = live.view.open.find(({ requestId, digest }) => requestId === asked.requestId && digest === asked.digest);
  // The request was answered already.
  if (card?.asks.type !== "permission") return;
  const { options } = card.asks;
  const option = options.find(({ kind }) => kind === "reject_once") ?? options.find(({ kind }) => kind.startsWith("reject"));
  if (!option) throw new Error("The agent offers no way to refuse it.");
  await live.answer(card, { optionId: option.optionId });
}

/** Goes to the tab that shows it, or opens one. */
async function open(path: string): Promise<void> {
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const there = windows.find((one) => new URL(one.url).pathname === path);
  await (there ? there.focus() : self.clients.openWindow(path));
}
