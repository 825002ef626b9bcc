// What streams bring, read by calls: for an address that holds streams back, whichever way they are opened. Live text does not come.

import type { Client } from "./client.js";
import { NoAnswer } from "./errors.js";
import { sleep } from "./retry.js";

/** An event as a stream would have brought it. */
export interface RawEvent {
  name: string;
  id: string | undefined;
  data: string;
}

/** Reads what has come after the event with this id. `isMore`: the next look is due at once. */
export type Look = (last: string | undefined, signal: AbortSignal) => Promise<{ events: RawEvent[]; isMore?: boolean }>;

/** How often is looked while a person looks on. */
const SEEN_EVERY = 2_000;
/** What no person looks at is read once in this many pauses, every 30 s. */
const UNSEEN_TIMES = 15;
/** A look, with all its calls. */
const LOOK_WITHIN = 20_000;
/** After this the stream is opened again: the address may hold nothing back any more. */
const STREAMS_AGAIN_AFTER = 300_000;
/** Lists that do not say what has changed are read so often at most. */
const REST_EVERY = 8_000;
const PAGE = 200;
/** Before any change of a session, and late enough for a minute before it. */
const BEGINNING = "1970-01-01T00:01:00.000Z";

/** The events of these looks, and before them undefined when the first has succeeded. It ends when the stream is to be tried again. */
export async function* polled(
  look: Look,
  last: () => string | undefined,
  isSeen: () => boolean,
  signal: AbortSignal,
): AsyncGenerator<RawEvent | undefined, void, undefined> {
  const end = performance.now() + STREAMS_AGAIN_AFTER;
  for (let isFirst = true; isFirst || performance.now() < end; isFirst = false) {
    const { events, isMore } = await inTime(look, last(), signal);
    if (isFirst) yield undefined;
    yield* events;
    if (isMore) continue;
    for (let times = 0; times === 0 || (times < UNSEEN_TIMES && !isSeen()); times++) await sleep(SEEN_EVERY, signal);
  }
}

async function inTime(look: Look, last: string | undefined, signal: AbortSignal): ReturnType<Look> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), LOOK_WITHIN);
  try {
    return await look(last, AbortSignal.any([signal, deadline.signal]));
  } catch (error) {
    if (!deadline.signal.aborted) throw error;
    const text = `There was no answer within ${LOOK_WITHIN / 1_000} s.`;
    throw new NoAnswer("timeout", text, false, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

/** The messages of a session, and what changes of it. */
export function lookAtSession(client: Client, id: string): Look {
  const changed = sessionChanges();
  let base: number | undefined;
  const path = { id };
  return async (last, signal) => {
    const session = await client.call("GET", "/v1/sessions/{id}", { path, signal });
    const from = last === undefined ? (base ??= session.lastSeq) : Number(last);
    const page = await (session.lastSeq > from
      ? client.call("GET", "/v3/sessions/{id}/messages", { path, query: { after: from, limit: PAGE }, signal })
      : undefined);
    return together(changed(session), page, from);
  };
}

/** The same behind a public link. */
export function lookAtLink(client: Client, token: string, viewToken: string): Look {
  const changed = sessionChanges();
  const headers = { "x-view-token": viewToken };
  let base: number | undefined;
  return async (last, signal) => {
    const from = last === undefined ? base : Number(last);
    const query = from === undefined ? { limit: 1 } : { after: from, limit: PAGE };
    const page = await client.call("GET", "/v1/public-sessions/{token}", { path: { token }, query, headers, signal });
    base ??= page.session.lastSeq;
    return together(changed(page.session), page, from ?? base);
  };
}

/** The changes of a run. */
export function lookAtRun(client: Client, id: string): Look {
  return async (last, signal) => {
    const query = { timeoutMs: 0, ...(last !== undefined && { cursor: last }) };
    const pended = await client.call("GET", "/v1/orchestrator/runs/{id}/pend", { path: { id }, query, signal });
    const change = pended.changed || last === undefined ? [event("change", pended, pended.cursor)] : [];
    const end = pended.terminal && !pended.more ? [event("end", { reason: "terminal" })] : [];
    // A server that only says that there is more is asked again after a pause.
    return { events: [...change, ...end], isMore: pended.more === true && pended.cursor !== last };
  };
}

/** What changes in the account. Sessions come with their hints, so that nothing is read for each of them. What is gone is in no list: the
 * hint that anything may have changed, after each try of the stream, is for that. */
export function lookAtAccount(client: Client): Look {
  /** The newest change that is known, and the sessions that had changed in the minute before: one may become visible after a later one. */
  let newest: string | undefined;
  let lately = new Map<string, string>();
  let rest = new Map<string, Known>();
  let restReadAt = Number.NEGATIVE_INFINITY;
  return async (_last, signal) => {
    const query = { include: "shared" as const, limit: newest === undefined ? 1 : PAGE };
    const since = newest === undefined ? {} : { changedSince: new Date(Date.parse(newest) - 60_000).toISOString() };
    const { sessions, nextCursor } = await client.call("GET", "/v1/sessions", { query: { ...query, ...since }, signal });
    const isDue = performance.now() - restReadAt >= REST_EVERY;
    const read = isDue ? await restOf(client, signal) : rest;
    const isFirst = rest.size === 0;
    const hints: object[] = [];
    const changed = newest === undefined ? [] : sessions.filter(({ id, updatedAt }) => lately.get(id) !== updatedAt);
    // There are more that are new.
    if (nextCursor && changed.length === sessions.length) hints.push({ kind: "all" });
    else hints.push(...changed.map((session) => ({ kind: "session", id: session.id, session })));
    for (const [key, { hint, shown }] of read) if (rest.get(key)?.shown !== shown && !isFirst) hints.push(hint);
    for (const [key, { gone }] of rest) if (!read.has(key) && gone) hints.push(gone);
    lately = new Map(sessions.map(({ id, updatedAt }) => [id, updatedAt]));
    newest = sessions.reduce((found, { updatedAt }) => (updatedAt > found ? updatedAt : found), newest ?? BEGINNING);
    if (isDue) [rest, restReadAt] = [read, performance.now()];
    return { events: hints.map((hint) => event("hint", hint)) };
  };
}

/** A record of a list without `changedSince`: what of it shows a change, and the hints of a change and of its end. */
interface Known {
  shown: string;
  hint: object;
  gone?: object;
}

/** The sessions that want something, which is no change of them, machines, devices and the newest runs. */
async function restOf(client: Client, signal: AbortSignal): Promise<Map<string, Known>> {
  const [{ sessions }, { machines }, { devices }, { runs }] = await Promise.all([
    client.call("GET", "/v1/sessions", { query: { include: "shared", attention: "any", limit: PAGE }, signal }),
    client.call("GET", "/v1/machines", { query: { limit: PAGE }, signal }),
    client.call("GET", "/v1/devices", { signal }),
    client.call("GET", "/v1/orchestrator/runs", { query: { limit: 20 }, signal }),
  ]);
  const known = new Map<string, Known>([["device", { shown: JSON.stringify(devices), hint: { kind: "device" } }]]);
  for (const session of sessions) {
    const gone = { kind: "session", id: session.id };
    known.set(session.id, { shown: String(session.attentionVersion), hint: { ...gone, session }, gone });
  }
  for (const { id, online, seen, metadataVersion } of machines) {
    const hint = { kind: "machine", id };
    known.set(id, { shown: JSON.stringify([online, seen, metadataVersion]), hint, gone: hint });
  }
  for (const { id, version } of runs) known.set(id, { shown: String(version), hint: { kind: "run", id } });
  return known;
}

const event = (name: string, data: unknown, id?: number | string): RawEvent => ({
  name,
  id: id === undefined ? undefined : String(id),
  data: JSON.stringify(data),
});

/** Gives an event when a session has changed since it was last given. Messages and heartbeats do not count. */
function sessionChanges(): (session: object) => RawEvent[] {
  let shown: string | undefined;
  return (session) => {
    const before = shown;
    shown = JSON.stringify({ ...session, lastSeq: 0, lastActiveAt: "", updatedAt: "" });
    return shown === before ? [] : [event("session", session)];
  };
}

function together(
  changes: RawEvent[],
  page: { messages: { seq: number }[]; hasMore: boolean } | undefined,
  from: number,
): Awaited<ReturnType<Look>> {
  const newer = (page?.messages ?? []).filter(({ seq }) => seq > from).sort((one, other) => one.seq - other.seq);
  const messages = newer.map((message) => event("message", message, message.seq));
  return { events: [...changes, ...messages], isMore: page?.hasMore === true && messages.length > 0 };
}
