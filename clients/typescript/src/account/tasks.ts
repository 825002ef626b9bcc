// Tasks of runs. Each is signed here, so that a server can read it and cannot change what a machine does. What people read of a run is what a
// device of theirs has signed: a server that answers with another one would have a person sign for what they do not see.

import { Distrust, isProblem, Refused } from "../errors.js";
import { digestText, uuidV7 } from "../protocol/bytes.js";
import { sharesSessions } from "../protocol/lists/list.js";
import {
  newNonce,
  outputKeys,
  readTask,
  sealTask,
  signTask,
  type ClearTask,
  type SessionTask,
  type Signed,
} from "../protocol/seal/task.js";
import type { Context } from "./context.js";
import { everHad, FRESH } from "./lists.js";
import type { components } from "../openapi.js";

type Schemas = components["schemas"];
type CreateRun = Schemas["CreateRun"];
type CreateTask = Schemas["CreateTask"];

/** The longest time for which a machine takes a task, in milliseconds. */
const GOOD_FOR = 7 * 24 * 3_600_000;
const ORDER_GOOD_FOR = 24 * 3_600_000;

/** A run whose ids are chosen. */
type WithIds<R extends CreateRun> = Omit<R, "id" | "tasks"> & { id: string; tasks: (R["tasks"][number] & { id: string })[] };

/** The same run with ids that this device has chosen, so that a server cannot give a task the id of another one. */
export function withIds<R extends CreateRun>(context: Context, run: R): WithIds<R> {
  const now = context.credential.now();
  const ids = run.tasks.map(() => uuidV7(now)).sort();
  const tasks = run.tasks.map((task, at) => ({ ...task, id: task.id ?? ids[at] ?? uuidV7(now) }));
  return { ...run, id: run.id ?? uuidV7(now), tasks };
}

/** What is drawn once for a task that is submitted, however often it is signed under other ids: a machine does it once. */
export type Once = Pick<SessionTask, "nonce" | "sessionId">;
export const drawOnce = (context: Context): Once => ({ nonce: newNonce(), sessionId: uuidV7(context.credential.now()) });

/** The same run with each task signed by this device, under ids that it has chosen. What the run says for all of its tasks is signed with each
 * of them. Sealed tasks have a signature of their own. A machine lets an agent work in `bypass` only where a primary device has signed it, so a
 * linked one is refused here. */
export async function signRun(context: Context, given: CreateRun, once: readonly Once[] = []): Promise<CreateRun> {
  const run = withIds(context, given);
  const isBypass = [run, ...run.tasks].some(({ permission }) => permission === "bypass");
  if (isBypass && !(await context.isPrimary())) {
    throw new Refused(
      "This device is a linked one, and only a primary one lets an agent work without permission checks. Take another permission.",
    );
  }
  const ids = new Map(run.tasks.flatMap(({ taskKey, id }) => (taskKey == null ? [] : [[taskKey, id] as const])));
  const now = context.credential.now();
  const tasks: CreateTask[] = [];
  for (const [position, task] of run.tasks.entries()) {
    if (task.sealed !== undefined && task.sealed !== null) {
      tasks.push(task);
      continue;
    }
    const body = bodyOf([task, position], run, ids, [now, once[position]?.nonce]);
    tasks.push({ ...task, ...(await signTask(JSON.stringify(body), body.machineId, context.keys.signer)) });
  }
  return { ...run, tasks };
}

function bodyOf(
  [task, position]: [task: CreateTask & { id: string }, position: number],
  run: WithIds<CreateRun>,
  ids: ReadonlyMap<string, string>,
  [now, nonce = newNonce()]: [now: number, nonce: string | undefined],
): ClearTask {
  const { prompt, provider, model, workingDirectory, base, isolation, title, taskKey } = task;
  const permission = task.permission ?? run.permission;
  const allowedTools = task.allowedTools ?? run.allowedTools ?? [];
  const baseTask = base == null ? undefined : ids.get(base);
  const dependsOn = outputKeys(prompt ?? "").flatMap((key) => ids.get(key) ?? []);
  return {
    runId: run.id,
    taskId: task.id,
    ...(run.title != null && { runTitle: run.title }),
    ...(title != null && { title }),
    ...(taskKey != null && { taskKey }),
    position,
    prompt: prompt ?? "",
    provider,
    ...(model != null && { model }),
    ...(workingDirectory != null && { workingDirectory }),
    ...(permission != null && { permission }),
    ...(allowedTools.length > 0 && { allowedTools }),
    isolation: isolation ?? "none",
    ...(dependsOn.length > 0 && { dependsOn }),
    ...(base != null && { base: baseTask === undefined ? { ref: base } : { task: baseTask } }),
    machineId: task.machineId ?? run.machineId ?? null,
    nonce,
    at: new Date(now).toISOString(),
    expires: new Date(now + GOOD_FOR).toISOString(),
  };
}

/** What the owner wants of a task: its agent gets a text, or its changes are applied or discarded as they were shown. `seen` is the digest
 * of the diff or of the list of files. `unseen`: also what could not be shown. */
export type Wanted = { action: "message"; text: string } | { action: "apply" | "discard"; seen: string; unseen?: boolean };

/** What is known of the task that an order is about. */
type Ordered = Pick<Schemas["Task"], "id" | "machineId" | "session" | "signed">;

/** What the owner wants of a task that there is, signed for the machine that has its agent's conversation or its worktree. */
export async function signOrder(context: Context, task: Ordered, wanted: Wanted): Promise<Signed> {
  if (!task.signed) throw new Refused(`The task is ${doubt(task) ?? NOT_SIGNED}, so nothing is ordered about it.`);
  const now = context.credential.now();
  const machineId = task.machineId ?? null;
  const order = {
    action: wanted.action,
    taskId: task.id,
    taskDigest: await digestText(task.signed.signedBody),
    ...(wanted.action === "message" ? { text: wanted.text } : { seen: wanted.seen, ...(wanted.unseen && { unseen: true }) }),
    machineId,
    nonce: newNonce(),
    at: new Date(now).toISOString(),
    expires: new Date(now + ORDER_GOOD_FOR).toISOString(),
  };
  return signTask(JSON.stringify(order), machineId, context.keys.signer, wanted.action === "message" ? "message" : "order");
}

/** A task that is the first turn of a live session: what it does is sealed for its machine, and what is said stays in the session. */
export interface Turn extends Pick<SessionTask, "provider" | "workingDirectory" | "model" | "title" | "maxCostUsd"> {
  machineId: string;
  prompt: string;
  /** What the agent may do without asking (default `ask`). `bypass` only from a primary device. */
  mode?: SessionTask["mode"];
}

/** The members of a run's task that say so, for the ids that were chosen. */
export async function sealTurn(
  context: Context,
  ids: Pick<SessionTask, "runId" | "taskId">,
  { machineId, mode = "ask", ...turn }: Turn,
  { nonce, sessionId } = drawOnce(context),
): Promise<Pick<CreateTask, "machineId" | "provider" | "sealed" | "session">> {
  const now = context.credential.now();
  const times = { at: new Date(now).toISOString(), expires: new Date(now + GOOD_FOR).toISOString() };
  const sealed = await sealedFor(context, machineId, {
    ...ids,
    session: true,
    sessionId,
    mode,
    ...turn,
    nonce,
    ...times,
  });
  return { machineId, provider: turn.provider, sealed, session: true };
}

/** A task that is sealed for a machine of the account and signed by this device. */
export async function sealedFor(context: Context, machineId: string, task: SessionTask): Promise<string> {
  const { keys, userId } = context;
  if (task.mode === "bypass" && !(await context.isPrimary())) {
    throw new Refused("This device is a linked one, and only a primary one starts a session in bypass. Take another mode.");
  }
  // A machine that has only just joined is not in a list that was read before.
  const machine = (await context.own(FRESH)).list.machine(machineId) ?? (await context.own(0)).list.machine(machineId);
  if (!machine) {
    throw new Refused(
      "This machine has no key in your list of devices, so nothing can be sealed for it. Run `ensemble runner` there on a primary device, or link it in the settings.",
    );
  }
  return sealTask(JSON.stringify(task), machine.boxKey, userId, machineId, keys.signer);
}

/** How often ids are drawn for what is submitted. Another run or task may have the ref of one. */
export class Draws {
  #left = 3;

  /** Whether to draw and to sign again after this error. */
  mayDrawAgain(error: unknown): boolean {
    this.#left--;
    return this.#left > 0 && isProblem(error, "CONFLICT");
  }
}

type SignedBody = Schemas["Signed"];
type Run = Omit<Schemas["Run"], "tasks"> & { tasks: Schemas["Task"][] };

/** In the place of what no device of the account has signed. */
export const NOT_SIGNED = "not signed by your devices";

/** Behind the title of what is sealed for its machine. It is the server's word. */
export const NOT_CHECKED = "not checked: sealed";

/** What is known about the tasks of a run, by their ids. */
export type CheckedTasks = Map<string, { signed: SignedBody; task: ClearTask | undefined }>;

/** Puts what was signed in the place of what the server says of a run. Afterwards a task has `signed` only when that is good. `known`: what was
 * found out before. */
export async function takeSigned<R extends Run>(
  context: Context,
  id: string,
  run: R,
  known: CheckedTasks = new Map(),
): Promise<R> {
  if (run.id !== id && run.ref !== id) {
    throw new Distrust("The server answered with another run than the one that was asked for. Do not trust it.");
  }
  const signers = new Map<string, Promise<boolean>>();
  const counts = (key: string): Promise<boolean> => {
    const found = signers.get(key) ?? isOwn(context, key);
    signers.set(key, found);
    return found;
  };
  const titles = new Set<string | undefined>();
  const tasks: Schemas["Task"][] = [];
  for (const [at, { signed, ...task }] of run.tasks.entries()) {
    const body = signed && (await checked(task.id, signed, known, counts));
    if (signed && body && body.runId === run.id && body.taskId === task.id && (body.position ?? at) === at) {
      titles.add(body.runTitle);
      tasks.push({ ...task, signed, title: body.title ?? null, taskKey: body.taskKey ?? null, prompt: body.prompt });
    } else if (task.session !== undefined && task.session !== null) {
      // What a session does is sealed for its machine, with its title. The server alone says that it is one.
      tasks.push({ ...task, prompt: null });
    } else {
      tasks.push({ ...task, title: null, prompt: null });
    }
  }
  const isSealed = tasks.some(({ session }) => session !== undefined && session !== null);
  const [signedTitle] = titles;
  const title = titles.size === 1 ? (signedTitle ?? null) : titles.size === 0 && isSealed ? run.title : null;
  return { ...run, title, tasks };
}

/** What is to be said of a task of a run that was taken so, where no good signature proves what it is. Nothing is ordered about it. */
export function doubt({ signed, session }: Pick<Schemas["Task"], "signed" | "session">): string | undefined {
  if (signed) return undefined;
  return session === undefined || session === null ? NOT_SIGNED : NOT_CHECKED;
}

async function checked(
  id: string,
  signed: SignedBody,
  known: CheckedTasks,
  counts: (key: string) => Promise<boolean>,
): Promise<ClearTask | undefined> {
  const before = known.get(id);
  const isSame = before?.signed.signedBody === signed.signedBody && before.signed.signature.sig === signed.signature.sig;
  if (before && isSame && before.signed.signature.key === signed.signature.key) return before.task;
  const task = (await counts(signed.signature.key)) ? await readTask(signed) : undefined;
  known.set(id, { signed, task });
  return task;
}

/** Whether a key is or was that of a device which signs for the context. */
async function isOwn(context: Context, key: string): Promise<boolean> {
  const { list } = await context.own();
  const role = list.device(key)?.role;
  if (role !== undefined) return sharesSessions(role);
  return everHad(context.client, context.userId, list.body.account, key);
}
