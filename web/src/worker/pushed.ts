/** Shows what was pushed. The push says only that something has happened and where; what it is, is read and opened here. */
import type { LiveSession } from "@ensemble/client/account";
import type { NoticeData } from "../base/worker-words.ts";
import { paths } from "../shell/route.ts";
import { oneLine, strict, strictLine } from "../text/visible.ts";
import { account, soon } from "./account.ts";

declare const self: ServiceWorkerGlobalScope;

const KINDS = ["permission", "question", "finished", "failed", "away"] as const;
type Kind = (typeof KINDS)[number];

interface Pushed {
  kind: Kind;
  sessionId?: string | undefined;
  runId?: string | undefined;
  attention: string;
}

interface Notice {
  title: string;
  body: string;
  asked?: NoticeData["asked"];
  /** Nothing is left to do. */
  isOver?: boolean;
}

/** The characters of a request that a notification shows. Browsers cut what is longer. */
const MOST_SHOWN = 400;
const ID = /^[\w-]{1,128}$/;
const SAID: Record<Kind, string> = {
  permission: "Permission needed.",
  question: "The agent asks a question.",
  finished: "It is done.",
  failed: "It has failed.",
  away: "Its machine went away in the middle of a turn.",
};
const UNKNOWN: Notice = { title: "A session needs you", body: "Open Ensemble to see what it is." };

/** Always shows a notification: browsers revoke the permission of a page whose pushes show none. */
export async function pushed(data: PushMessageData | null): Promise<void> {
  const what = read(data);
  const notice = what ? await soon(noticeOf(what)).catch(() => UNKNOWN) : UNKNOWN;
  const path = what?.sessionId ? paths.session(what.sessionId) : what?.runId ? paths.run(what.runId) : paths.home;
  const kept: NoticeData = {
    path,
    sessionId: what?.sessionId,
    attention: what?.attention ?? "",
    at: Date.now(),
    asked: notice.asked,
  };
  const actions = [
    { action: "open", title: "Open" },
    ...(notice.asked && what?.kind === "permission" ? [{ action: "deny", title: "Deny" }] : []),
  ];
  const options = {
    body: notice.body,
    tag: what?.attention ?? "ensemble",
    icon: "/icon-192.png",
    badge: "/icon-192.png",
    data: kept,
    actions,
  };
  await self.registration.showNotification(notice.title, options);
  if (notice.isOver || (what && (await isSeen(path)))) await close(options.tag);
}

/** A page of this origin is looked at, and shows it. */
async function isSeen(path: string): Promise<boolean> {
  const windows = await self.clients.matchAll({ type: "window" });
  return path !== paths.home && windows.some((one) => one.visibilityState === "visible" && new URL(one.url).pathname === path);
}

async function close(tag: string): Promise<void> {
  for (const one of await self.registration.getNotifications({ tag })) one.close();
}

/** What has another form comes from a service that this version does not know. */
function read(data: PushMessageData | null): Pushed | undefined {
  let given: Record<string, unknown> | null;
  try {
    given = data?.json() as Record<string, unknown> | null;
  } catch {
    return undefined;
  }
  const id = (value: unknown): string | undefined => (typeof value === "string" && ID.test(value) ? value : undefined);
  const kind = KINDS.find((one) => one === given?.["kind"]);
  const [sessionId, runId, attention] = [id(given?.["sessionId"]), id(given?.["runId"]), id(given?.["attention"])];
  return kind && attention !== undefined && (sessionId ?? runId) !== undefined
    ? { kind, sessionId, runId, attention }
    : undefined;
}

async function noticeOf({ kind, sessionId, runId }: Pushed): Promise<Notice> {
  const own = await account();
  if (sessionId === undefined) {
    const { client } = own;
    const run = await client.call("GET", "/v1/orchestrator/runs/{id}", { path: { id: runId ?? "" } });
    return { title: oneLine(run.title ?? `Run ${run.ref}`, 120), body: SAID[kind] };
  }
  if (kind === "permission" || kind === "question") {
    const live = await own.sessions.open(sessionId);
    return { title: await titleOf(live), ...asked(live, kind) };
  }
  const session = await own.sessions.read(sessionId);
  const { title } = await own.sessions.metadata(session);
  return { title: oneLine(title ?? `Session ${session.ref}`, 120), body: SAID[kind] };
}

async function titleOf(live: LiveSession): Promise<string> {
  const { title } = await live.metadata();
  return oneLine(title ?? `Session ${live.session.ref}`, 120);
}

function asked({ view }: LiveSession, kind: "permission" | "question"): Omit<Notice, "title"> {
  const card = view.open.find(({ asks }) => asks.type === kind) ?? view.open[0];
  if (!card) return { body: "It was answered already.", isOver: true };
  const { asks, requestId, digest } = card;
  const text =
    asks.type === "permission"
      ? `${strictLine(asks.title)}\n${strict(asks.detail)}`
      : asks.questions.map((one) => strict(one.text)).join("\n");
  return { body: text.slice(0, MOST_SHOWN), asked: { requestId, digest } };
}
