// Streams of events: they reconnect, resume after the last event, and give each event once.

import { createParser } from "eventsource-parser";
import { segment } from "./call.js";
import type { Client } from "./client.js";
import { isProblem, NoAnswer, Problem } from "./errors.js";
import type { Look, RawEvent } from "./poll.js";
import { again, pause, sleep } from "./retry.js";
import type { components } from "./openapi.js";

type Schemas = components["schemas"];
/** An event of a session's stream. */
export type SessionEvent =
  | { event: "message"; data: Schemas["Message"] }
  | { event: "session"; data: Schemas["Session"] }
  | { event: "live"; data: Schemas["LiveFrame"] };
/** An event of the stream behind a public link. */
export type PublicSessionEvent =
  | { event: "message"; data: Schemas["PublicMessage"] }
  | { event: "session"; data: Schemas["PublicSession"] }
  | { event: "live"; data: Schemas["LiveFrame"] };
/** An event of a run's stream. */
export type RunEvent = { event: "change"; data: Schemas["Pended"] };
/** An event of a conversation by voice: its status, what was said, and what its agent read. */
export type VoiceSessionEvent =
  | { event: "status"; data: Schemas["VoiceStatus"] }
  | { event: "utterance"; data: Schemas["VoiceUtterance"] }
  | { event: "tool"; data: Schemas["VoiceToolCall"] };
/** What has changed in the account. `all`: anything may have; it comes first, and after each new connection. */
export type Hint = Schemas["Hint"] & {
  /** The session as it is now. A hint has it where streams are held back, and it need not be read. */
  session?: Schemas["Session"];
};

/** How a stream is: it waits for a connection since `since` (as `performance.now()`), or has one. `isHeldBack`: the address holds streams
 * back, so what they bring is read every 2 s while it is seen, and every 30 s else. Live text does not come. */
export type StreamState = { state: "connecting"; since: number; error?: unknown } | { state: "open"; isHeldBack?: true };

export interface FollowOptions {
  signal?: AbortSignal;
  /** Called when the connection is lost and when it is back. */
  onState?: (state: StreamState) => void;
  /** A stream without a byte for this time is broken, in milliseconds (default 40,000: the server sends a comment every 15 s). */
  silence?: number;
  /** Whether a person looks at what comes (default: the page is visible). It counts where streams are held back. */
  isSeen?: () => boolean;
}

interface Source {
  path: string;
  headers?: Record<string, string>;
  /** The id of the last event that was seen. */
  after?: string;
  /** Ids are numbers that rise. Events with one that was seen are left out. */
  isNumbered?: boolean;
  /** Give `undefined` at each connection. */
  marksConnections?: boolean;
  /** How the same is read where streams are held back. */
  look?: (poll: typeof import("./poll.js")) => Look;
}

/** A proxy that holds streams back sends no head for this time, or no byte after it. The service sends both at once. */
const HEAD_WITHIN = 5_000;
const FIRST_BYTE_WITHIN = 3_000;

const isVisible = (): boolean => (globalThis as { document?: { hidden: boolean } }).document?.hidden === false;

const FOREIGN = "Something else than this service answered, as the sign-in page of a network does.";

/** Longer than any event of the service, in characters. */
const LONGEST_EVENT = 32 * 1_024 * 1_024;

/** Every message above `after` (only new ones without), changes of the session, and live frames. */
export async function* followSession(
  client: Client,
  session: string,
  options: FollowOptions & { after?: number } = {},
): AsyncGenerator<SessionEvent, void, undefined> {
  const path = `/v3/sessions/${segment(session)}/messages/stream`;
  const look: Source["look"] = ({ lookAtSession }) => lookAtSession(client, session);
  const events = follow(client, { path, isNumbered: true, look, ...after(options.after) }, options);
  for await (const event of events) {
    if (event?.name === "message" || event?.name === "session" || event?.name === "live") yield typed(event);
  }
}

/** The same behind a public link, with the `viewToken` of an open view. */
export async function* followLink(
  client: Client,
  token: string,
  viewToken: string,
  options: FollowOptions & { after?: number } = {},
): AsyncGenerator<PublicSessionEvent, void, undefined> {
  const path = `/v1/public-sessions/${segment(token)}/stream`;
  const headers = { "x-view-token": viewToken };
  const look: Source["look"] = ({ lookAtLink }) => lookAtLink(client, token, viewToken);
  const events = follow(client, { path, headers, isNumbered: true, look, ...after(options.after) }, options);
  for await (const event of events) {
    if (event?.name === "message" || event?.name === "session" || event?.name === "live") yield typed(event);
  }
}

/** The changes of a run until it has ended. `after` is the version that is known. */
export async function* followRun(
  client: Client,
  run: string,
  options: FollowOptions & { after?: number } = {},
): AsyncGenerator<RunEvent, void, undefined> {
  const path = `/v1/orchestrator/runs/${segment(run)}/events`;
  const look: Source["look"] = ({ lookAtRun }) => lookAtRun(client, run);
  for await (const event of follow(client, { path, isNumbered: true, look, ...after(options.after) }, options)) {
    if (event?.name === "change") yield typed(event);
  }
}

/** What happens in a conversation by voice of this account, from its beginning until it is over. */
export async function* followVoice(
  client: Client,
  gatewaySession: string,
  voiceKey: string,
  options: FollowOptions = {},
): AsyncGenerator<VoiceSessionEvent, void, undefined> {
  const path = `/v1/voice/session/${segment(gatewaySession)}/events`;
  for await (const event of follow(client, { path, headers: { "x-voice-key": voiceKey } }, options)) {
    if (event?.name === "status" || event?.name === "utterance" || event?.name === "tool") yield typed(event);
  }
}

/** What changes in the account. Read again what a hint names; after `all` read everything. */
export async function* followHints(client: Client, options: FollowOptions = {}): AsyncGenerator<Hint, void, undefined> {
  const look: Source["look"] = ({ lookAtAccount }) => lookAtAccount(client);
  for await (const event of follow(client, { path: "/v1/events", marksConnections: true, look }, options)) {
    if (!event) yield { kind: "all" };
    else if (event.name === "hint") yield parsed(event) as Hint;
  }
}

const after = (seq: number | undefined): { after?: string } => (seq === undefined ? {} : { after: String(seq) });

const typed = <E extends { event: string }>(event: RawEvent): E => ({ event: event.name, data: parsed(event) }) as unknown as E;

function parsed({ data }: RawEvent): unknown {
  try {
    return JSON.parse(data);
  } catch (error) {
    throw new NoAnswer("foreign", FOREIGN, false, { cause: error });
  }
}

/** The events of a source. It ends when nothing more can come or the signal is aborted, and throws when the server refuses to continue. */
async function* follow(
  client: Client,
  source: Source,
  { signal, onState, silence = 40_000, isSeen = isVisible }: FollowOptions,
): AsyncGenerator<RawEvent | undefined, void, undefined> {
  let last = source.after;
  let [failures, refusals, asked] = [0, 0, undefined as number | undefined];
  let method = source.look || client.streamMethod !== "poll" ? client.streamMethod : undefined;
  let isTrial = false;
  let look: Look | undefined;
  onState?.({ state: "connecting", since: performance.now() });
  while (!signal?.aborted) {
    const connection = new AbortController();
    const stop = (): void => connection.abort(signal?.reason);
    signal?.addEventListener("abort", stop, { once: true });
    let error: unknown;
    const isPolled = method === "poll";
    const isTried = method === undefined || (isTrial && method === "POST");
    let isOpen = false;
    try {
      let events: AsyncGenerator<RawEvent | undefined, void, undefined>;
      if (method === "poll") {
        const poll = await import("./poll.js");
        look ??= source.look?.(poll);
        if (!look) return;
        events = poll.polled(look, () => last, isSeen, connection.signal);
      } else {
        const headers = {
          accept: "text/event-stream",
          ...source.headers,
          ...(last !== undefined && { "last-event-id": last }),
        };
        const response = await client.open(source.path, headers, connection.signal, {
          ...(method && { method }),
          ...(isTried && { within: HEAD_WITHIN }),
        });
        // What the stream is about is over, and its last event is known.
        if (response.status === 204) return;
        const type = response.headers.get("content-type") ?? "";
        if (!type.startsWith("text/event-stream")) throw new NoAnswer("foreign", FOREIGN, false);
        const within = { first: isTried ? FIRST_BYTE_WITHIN : silence, next: silence };
        events = read(response, connection, within, (retry) => (asked = retry));
      }
      for await (const event of events) {
        if (event === undefined) {
          client.streamMethod = method ??= "GET";
          [isOpen, isTrial] = [true, false];
          onState?.({ state: "open", ...(isPolled && { isHeldBack: true }) });
          if (source.marksConnections) yield undefined;
          continue;
        }
        [failures, refusals] = [0, 0];
        if (event.name === "end") {
          if (/"reason":"terminal"/.test(event.data)) return;
          if (!/"reason":"(draining|unavailable)"/.test(event.data)) await renew(client);
          break;
        }
        if (event.id !== undefined && event.id !== "") {
          if (source.isNumbered && last !== undefined && Number(event.id) <= Number(last)) continue;
          last = event.id;
        }
        yield event;
      }
      if (isPolled) {
        [method, isTrial] = ["POST", true];
        continue;
      }
    } catch (caught) {
      if (signal?.aborted) return;
      const isHeldBack = !isOpen && !isPolled && caught instanceof NoAnswer && caught.why === "timeout";
      if (isHeldBack && method === undefined) {
        [method, isTrial] = ["POST", true];
        continue;
      }
      if (isHeldBack && isTrial && source.look) {
        method = "poll";
        continue;
      }
      // The browser may be behind another proxy now, or without a network. What cannot be polled says nothing about the others.
      if (isHeldBack || (isPolled && !isOpen && !(caught instanceof Problem))) {
        if (source.look || client.streamMethod !== "poll") client.streamMethod = undefined;
        [method, isTrial] = [undefined, false];
      }
      error = caught;
      // The client has dropped the token: the first refusal may be about an old one.
      const isStale = isProblem(caught, "UNAUTHENTICATED") && refusals++ === 0;
      // A service that fails for a while is waited for: the caller need not reopen the stream.
      const mayPass = again(caught, true) !== undefined || (caught instanceof Problem && caught.status >= 500);
      if (!isStale && !mayPass) {
        if (!isTrial || method !== "POST") throw caught;
        // An older server, or a proxy that takes no POST here. Its answer to GET takes its time.
        method = "GET";
        continue;
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      connection.abort();
    }
    failures++;
    onState?.({ state: "connecting", since: performance.now(), ...(error !== undefined && { error }) });
    await sleep(pause(failures, asked ?? wantedBy(error), { longest: 10_000 }), signal).catch(() => undefined);
    asked = undefined;
  }
}

const wantedBy = (error: unknown): number | undefined => again(error, true)?.wanted;

async function renew(client: Client): Promise<void> {
  const token = await client.token().catch(() => undefined);
  if (token !== undefined) client.forget(token);
}

function broken(error: unknown): never {
  throw new NoAnswer("unreachable", "The stream broke.", false, { cause: error });
}

/** The events of one connection, and before them undefined when its first byte comes. A connection that is silent for too long, in
 * milliseconds, is given up. */
async function* read(
  response: Response,
  connection: AbortController,
  within: { first: number; next: number },
  onRetry: (ms: number) => void,
): AsyncGenerator<RawEvent | undefined, void, undefined> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const ready: RawEvent[] = [];
  const parser = createParser({
    onEvent: (event) => ready.push({ name: event.event ?? "message", id: event.id, data: event.data }),
    onRetry: (ms) => onRetry(Math.min(ms, 60_000)),
    onError: (error) => {
      if (error.type === "max-buffer-size-exceeded") throw new NoAnswer("foreign", "An event is too long.", false);
    },
    maxBufferSize: LONGEST_EVENT,
  });
  let watchdog: ReturnType<typeof setTimeout> | undefined;
  try {
    for (let isFirst = true; ; isFirst = false) {
      const isSilent = new Promise<never>((_, reject) => {
        const silence = isFirst ? within.first : within.next;
        watchdog = setTimeout(() => reject(new NoAnswer("timeout", "The stream is silent.", false)), silence);
      });
      const next = await Promise.race([reader.read().catch(broken), isSilent]);
      clearTimeout(watchdog);
      if (next.done) return;
      if (isFirst) yield undefined;
      parser.feed(decoder.decode(next.value, { stream: true }));
      yield* ready.splice(0);
    }
  } finally {
    clearTimeout(watchdog);
    connection.abort();
    await reader.cancel().catch(() => undefined);
  }
}
