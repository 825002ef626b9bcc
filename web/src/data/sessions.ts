/** The sessions of the account, kept new by the hints of one stream. Titles are opened here: the server cannot read them. */
import { type Hint, isNotFound, SealError } from "@ensemble/client";
import type { Metadata, Session } from "@ensemble/client/account";
import { Store } from "../base/store.ts";
import { account, mine } from "./account.ts";
import { connectionIs, knownSince, whyOf } from "./connection.ts";
import { textOf } from "./failure.ts";
import { shareHints } from "./hints.ts";
import { keepTrying } from "./keep-trying.ts";
import { keep, recall } from "./kept.ts";
import { confirmationsChanged, machinesChanged, nameOfMachine } from "./machines.ts";
import { closeAnswered } from "./notices.ts";
import { noteRemoval } from "./removed.ts";
import type { SessionRow } from "./row.ts";
import { runChanges } from "./runs.ts";

/** Sessions that are listed. Older ones are reached by their address. */
const MOST = 1_000;
/** Hints that come together are read together. */
const TOGETHER_MS = 50;

interface Listed {
  rows: readonly SessionRow[];
  isLoaded: boolean;
  error: string | undefined;
}

/** Rises when an invitation of the account may have changed. */
export const inviteChanges = new Store(0);

export const sessions = new Store<Listed>({ rows: [], isLoaded: false, error: undefined });

let stop: AbortController | undefined;
const waiting = new Set<string>();
let timer: ReturnType<typeof setTimeout> | undefined;

/** Lists the sessions, and follows what changes while the account is open. */
export function followAccount(): () => void {
  const controller = new AbortController();
  stop?.abort();
  stop = controller;
  void showKept();
  const failed = (error: unknown): void => {
    noteRemoval(error);
    connectionIs({ state: "connecting", why: whyOf(error) });
  };
  void keepTrying(() => follow(controller.signal), failed, controller.signal);
  return () => controller.abort();
}

/** The list as it was kept, until it is read. */
const KEPT = "sessions";
const KEPT_AFTER_MS = 3_000;
let keeping: ReturnType<typeof setTimeout> | undefined;

async function showKept(): Promise<void> {
  const found = await recall<SessionRow[]>(KEPT);
  if (!found || sessions.get().isLoaded || sessions.get().rows.length > 0) return;
  knownSince(found.at);
  sessions.set({ rows: found.value, isLoaded: true, error: undefined });
}

function keepSoon(): void {
  keeping ??= setTimeout(() => {
    keeping = undefined;
    if (account.get().state === "ready") void keep("seen", KEPT, sessions.get().rows);
  }, KEPT_AFTER_MS);
}

function follow(signal: AbortSignal): Promise<void> {
  const { client, userId } = mine();
  const onHint = ({ kind, id, session }: Hint): void => {
    if (kind === "all") void readAll(signal);
    else if (session && !isReading) void show(session.id, session, signal);
    else if ((kind === "session" || kind === "share") && id) soon(id, signal);
    // Whether its machine is there is a part of a session's row.
    if (kind === "machine") machineChanged(id, signal);
    // It may be back, and not know who may not command it any more.
    if (kind === "machine")
      void mine()
        .sessions.tellMachinesAgain()
        .catch(() => undefined);
    if (kind === "machine" || kind === "all") machinesChanged();
    if (kind === "machine" || kind === "device" || kind === "all") confirmationsChanged();
    if (kind === "device") void namesChanged(signal).catch(() => undefined);
    if (kind === "invite" || kind === "all") inviteChanges.update((count) => count + 1);
    if (kind === "run" || kind === "all") runChanges.update((count) => count + 1);
  };
  return shareHints(client, { user: userId, signal, onState: connectionIs, onHint });
}

/** A machine and its sessions are noticed to be away one after the other, by the heartbeat of each: they are looked at so long after. */
const AWAY_AFTER_MS = [0, 30_000, 60_000];

/** Reads the sessions of a machine that went away or came back: whether it is there is a part of their rows. */
function machineChanged(id: string | null | undefined, signal: AbortSignal): void {
  for (const after of AWAY_AFTER_MS) {
    setTimeout(() => {
      if (signal.aborted) return;
      for (const row of sessions.get().rows) if (row.hosted && (!id || row.machineId === id)) soon(row.id, signal);
    }, after);
  }
}

/** Machines may have other names in the next list. */
async function namesChanged(signal: AbortSignal): Promise<void> {
  await mine().own(0);
  machinesChanged();
  const ids = new Set(sessions.get().rows.flatMap((row) => machineOf(row) ?? []));
  const names = new Map(await Promise.all([...ids].map(async (id) => [id, await nameOfMachine(id)] as const)));
  if (signal.aborted) return;
  sessions.update((before) => ({
    ...before,
    rows: before.rows.map((row) => ({ ...row, host: names.get(machineOf(row) ?? "") ?? row.host })),
  }));
}

/** What has changed while everything was read: what was read of it may be older. */
const changed = new Set<string>();
let isReading = false;
let isDue = false;

/** Reads everything. What is asked for meanwhile is read once more, after it. */
async function readAll(signal: AbortSignal): Promise<void> {
  if (isReading) {
    isDue = true;
    return;
  }
  isReading = true;
  try {
    do {
      isDue = false;
      const failed = (error: unknown): void => sessions.update((before) => ({ ...before, error: textOf(error) }));
      await keepTrying(() => readPages(signal), failed, signal);
    } while (isDue && !signal.aborted);
  } finally {
    isReading = false;
    for (const id of changed) soon(id, signal);
    changed.clear();
  }
}

async function readPages(signal: AbortSignal): Promise<void> {
  const rows: SessionRow[] = [];
  for await (const page of mine().sessions.pages({ shared: true })) {
    if (signal.aborted) return;
    rows.push(...(await Promise.all(page.map(rowOf))));
    // The first page is what people look for.
    if (rows.length === page.length) sessions.set({ rows: sorted(rows), isLoaded: true, error: undefined });
    if (rows.length >= MOST) break;
  }
  if (signal.aborted) return;
  sessions.set({ rows: sorted(rows), isLoaded: true, error: undefined });
  keepSoon();
}

function soon(id: string, signal: AbortSignal): void {
  if (isReading) changed.add(id);
  waiting.add(id);
  timer ??= setTimeout(() => {
    timer = undefined;
    const ids = [...waiting];
    waiting.clear();
    for (const one of ids) void readOne(one, signal);
  }, TOGETHER_MS);
}

async function readOne(id: string, signal: AbortSignal): Promise<void> {
  let session: Session | undefined;
  try {
    session = await mine().sessions.read(id);
  } catch (error) {
    // Only a session that the server reports as gone is removed.
    if (!isNotFound(error)) return;
  }
  await show(id, session, signal);
}

async function show(id: string, session: Session | undefined, signal: AbortSignal): Promise<void> {
  const row = session && (await rowOf(session));
  if (signal.aborted) return;
  sessions.update((before) => {
    const others = before.rows.filter((one) => one.id !== id);
    return { ...before, rows: row ? sorted([row, ...others]) : others };
  });
  keepSoon();
}

/** Puts a row in place of the one with its id, before the server says so. */
export function putRow(row: SessionRow): void {
  sessions.update((before) => ({ ...before, rows: before.rows.map((one) => (one.id === row.id ? row : one)) }));
}

/** Reads a session again, as after it was changed here. */
export function readAgain(id: string): Promise<void> {
  return readOne(id, new AbortController().signal);
}

function sorted(rows: SessionRow[]): SessionRow[] {
  return rows.sort((one, other) => (one.updatedAt < other.updatedAt ? 1 : -1));
}

const text = (value: unknown): string | undefined => (typeof value === "string" && value.trim() !== "" ? value : undefined);

/** The machine of a session, if the account's own list can name it. The session's key opens for this machine only. */
function machineOf({ accessLevel, hosted, machineId }: SessionRow | Session): string | undefined {
  return accessLevel === "owner" && hosted ? (machineId ?? undefined) : undefined;
}

/** A row of a session, with what is sealed in it opened. */
export async function rowOf(session: Session): Promise<SessionRow> {
  const metadata = await mine()
    .sessions.metadata(session)
    .catch((error: unknown) => (error instanceof SealError ? undefined : ({} as Metadata)));
  const { id, ref, ownerId, online, archived, accessLevel, updatedAt } = session;
  const machine = machineOf(session);
  return {
    id,
    ref,
    ownerId,
    online,
    lastActiveAt: session.lastActiveAt ?? undefined,
    archived,
    accessLevel,
    updatedAt,
    // Without its keys nothing of it opens. Anything else may be over with the next hint.
    title: metadata ? (text(metadata.title) ?? `Session ${ref}`) : `Session ${ref} (its key is not for this device)`,
    directory: text(metadata?.path),
    host: metadata && machine !== undefined ? await nameOfMachine(machine).catch(() => undefined) : text(metadata?.host),
    agent: text(metadata?.agent),
    machineId: session.machineId ?? undefined,
    attention: session.attention?.kind ?? "none",
    attentionId: session.attention?.id ?? undefined,
    open: session.attention?.open ?? 0,
    thinking: session.thinking,
    cannotWrite: session.cannotWrite ?? undefined,
    ended: session.status === "ended",
    hosted: session.hosted === true,
  };
}

// Notifications of answered requests are closed.
sessions.subscribe(() => closeAnswered(sessions.get().rows));

account.subscribe(() => {
  if (account.get().state !== "ready") stop?.abort();
});
