/** The server's voice: its key, and the conversations that this account opens. */
import { followVoice, Problem, type VoiceSessionEvent } from "@ensemble/client";
import type { components } from "@ensemble/client";
import { server } from "../base/server.ts";
import { Store } from "../base/store.ts";
import { account, mine } from "./account.ts";

type Start = components["schemas"]["VoiceStart"];

/** The server's voice key. Undefined: it has no voice, or was not asked yet. */
export const voiceKey = new Store<string | undefined>(undefined);
let asked: string | undefined;

/** Asks once for each account. A server without voice answers that there is none. */
export function askForVoice(): void {
  const me = account.get();
  // A page of `ensemble web` may call the server and nothing else.
  if (server() !== location.origin || me.state !== "ready" || asked === me.userId) return;
  asked = me.userId;
  const { client } = mine();
  client.call("GET", "/v1/voice/key").then(
    ({ voiceKey: key }) => voiceKey.set(key),
    (error: unknown) => {
      // An older server, or one without voice, stays without. After another failure, the next session asks again.
      if (!(error instanceof Problem && error.status === 404)) asked = undefined;
    },
  );
}

/** A conversation that was granted. */
export interface Granted {
  id: string;
  url: string;
  token: string;
  agentIdentity: string;
}

export class NotGranted extends Error {}

const WHY: Record<string, string> = {
  rate_limited: "Too many conversations were started within a short time. Wait a minute, then try again.",
  user_sessions: "You are already talking elsewhere. End a conversation there, or wait until it has ended.",
  total_sessions: "Too many people are talking to this server. Try again later.",
  user_daily_seconds: "Your time for talking today is used up. It starts again at midnight (UTC).",
  total_daily_seconds: "The server's time for talking today is used up. It starts again at midnight (UTC).",
  capacity: "The voice service has no room left. Try again later.",
  agent_unavailable:
    "No voice agent answers at present. Try again in a minute; if it stays so, tell the operator of the server.",
};

/** Opens a conversation about a session. Fails with {@link NotGranted} where the server says no. */
export async function startTalk(sessionId: string, language: string): Promise<Granted> {
  const me = account.get();
  const key = voiceKey.get();
  if (me.state !== "ready" || key === undefined) throw new NotGranted("This server has no voice.");
  const { client } = mine();
  const answer: Start = await client.call("POST", "/v1/voice/session/start", {
    body: { userId: me.userId, sessionId, language },
    headers: headers(key),
  });
  if (!answer.allowed)
    throw new NotGranted(WHY[answer.reason ?? ""] ?? "The server does not begin a conversation now. Try again later.");
  const { gatewaySessionId: id, roomUrl: url, participantToken: token, agentIdentity } = answer;
  if (!id || !url || !token || !agentIdentity)
    throw new NotGranted("The server is older than this page, so the two cannot talk. Ask its operator to update it.");
  return { id, url, token, agentIdentity };
}

/** Ends it on the server. If that fails, it ends by itself, because the room is empty. */
export async function stopTalk(gatewaySessionId: string): Promise<void> {
  const key = voiceKey.get();
  const { client } = mine();
  if (key !== undefined)
    await client.call("POST", "/v1/voice/session/stop", { body: { gatewaySessionId }, headers: headers(key) });
}

/** Tells the voice something in writing, as if the person had said it. */
export async function write(gatewaySessionId: string, text: string): Promise<void> {
  const key = voiceKey.get();
  if (key === undefined) return;
  const body = { gatewaySessionId, text, messageId: crypto.randomUUID() };
  const { client } = mine();
  await client.call("POST", "/v1/voice/session/text", { body, headers: headers(key) });
}

/** Has the voice speak words as they are. */
export async function say(gatewaySessionId: string, text: string): Promise<void> {
  const key = voiceKey.get();
  if (key === undefined) return;
  const body = { gatewaySessionId, text, messageId: crypto.randomUUID() };
  const { client } = mine();
  await client.call("POST", "/v1/voice/session/say", { body, headers: headers(key) });
}

/** What happens in a conversation, until it is over. */
export async function* followTalk(
  gatewaySessionId: string,
  signal: AbortSignal,
): AsyncGenerator<VoiceSessionEvent, void, undefined> {
  const key = voiceKey.get();
  if (key !== undefined) yield* followVoice(mine().client, gatewaySessionId, key, { signal });
}

const headers = (key: string): Record<string, string> => ({ "X-Voice-Key": key });
