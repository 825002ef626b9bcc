// Runs of tasks whose server can read them and cannot change what a machine does: each task is signed here.

import { digestText, uuidV7 } from "../bytes.js";
import { Refused } from "../errors.js";
import { newNonce, outputKeys, signTask, type ClearTask, type SessionTask, type Signed } from "../seal/task.js";
import type { Account } from "./account.js";
import { doubt, NOT_SIGNED } from "./signed-runs.js";
import { sealedFor } from "./start.js";
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
export function withIds<R extends CreateRun>(account: Account, run: R): WithIds<R> {
  const now = account.credential.now();
  const ids = run.tasks.map(() => uuidV7(now)).sort();
  const tasks = run.tasks.map((task, at) => ({ ...task, id: task.id ?? ids[at] ?? uuidV7(now) }));
  return { ...run, id: run.id ?? uuidV7(now), tasks };
}

/** The same run with each task signed by this device, under ids that it has chosen. What the run says for all of its tasks is signed with each
 * of them. Sealed tasks have a signature of their own. A machine lets an agent work in `bypass` only where a primary device has signed it, so a
 * linked one is refused here. */
export async function signRun(account: Account, given: CreateRun): Promise<CreateRun> {
  const run = withIds(account, given);
  const isBypass = [run, ...run.tasks].some(({ permission }) => permission === "bypass");
  if (isBypass && !(await account.isPrimary())) {
    throw new Refused(
      "This device is a linked one, and only a primary one lets an agent work without permission checks. Take another permission.",
    );
  }
  const ids = new Map(run.tasks.flatMap(({ taskKey, id }) => (taskKey == null ? [] : [[taskKey, id] as const])));
  const now = account.credential.now();
  const tasks: CreateTask[] = [];
  for (const [position, task] of run.tasks.entries()) {
    if (task.sealed !== undefined && task.sealed !== null) {
      tasks.push(task);
      continue;
    }
    const body = bodyOf([task, position], run, ids, now);
    tasks.push({ ...task, ...(await signTask(JSON.stringify(body), body.machineId, account.keys.signer)) });
  }
  return { ...run, tasks };
}

function bodyOf(
  [task, position]: [task: CreateTask & { id: string }, position: number],
  run: WithIds<CreateRun>,
  ids: ReadonlyMap<string, string>,
  now: number,
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
    nonce: newNonce(),
    at: new Date(now).toISOString(),
    expires: new Date(now + GOOD_FOR).toISOString(),
  };
}

/** What the owner wants of a task: its agent is told a text, or what it has changed is applied or discarded as it was shown. `seen` is the digest
 * of the diff or of the list of files. `unseen`: also what could not be shown. */
export type Wanted = { action: "message"; text: string } | { action: "apply" | "discard"; seen: string; unseen?: boolean };

/** What is known of the task that an order is about. */
type Ordered = Pick<Schemas["Task"], "id" | "machineId" | "session" | "signed">;

/** What the owner wants of a task that there is, signed for the machine that has its agent's conversation or its worktree. */
export async function signOrder(account: Account, task: Ordered, wanted: Wanted): Promise<Signed> {
  if (!task.signed) throw new Refused(`The task is ${doubt(task) ?? NOT_SIGNED}, so nothing is ordered about it.`);
  const now = account.credential.now();
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
  return signTask(JSON.stringify(order), machineId, account.keys.signer, wanted.action === "message" ? "message" : "order");
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
  account: Account,
  ids: Pick<SessionTask, "runId" | "taskId">,
  { machineId, mode = "ask", ...turn }: Turn,
): Promise<Pick<CreateTask, "machineId" | "provider" | "sealed" | "session">> {
  const now = account.credential.now();
  const times = { at: new Date(now).toISOString(), expires: new Date(now + GOOD_FOR).toISOString() };
  const sealed = await sealedFor(account, machineId, {
    ...ids,
    session: true,
    sessionId: uuidV7(now),
    mode,
    ...turn,
    nonce: newNonce(),
    ...times,
  });
  return { machineId, provider: turn.provider as CreateTask["provider"], sealed, session: true };
}
