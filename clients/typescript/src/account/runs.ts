// Runs of tasks whose server can read them and cannot change what a machine does: each task is signed here.

import { uuidV7 } from "../bytes.js";
import { Refused } from "../errors.js";
import { newNonce, signTask, type ClearTask, type SessionTask, type Signed } from "../seal/task.js";
import type { Account } from "./account.js";
import { sealedFor } from "./start.js";
import type { components } from "../openapi.js";

type Schemas = components["schemas"];
type CreateRun = Schemas["CreateRun"];
type CreateTask = Schemas["CreateTask"];

/** The longest time for which a machine takes a task, in milliseconds. */
const GOOD_FOR = 7 * 24 * 3_600_000;
/** An order names a task and not what its worktree holds then, so it is good for a day. */
const ORDER_GOOD_FOR = 24 * 3_600_000;

/** The same run with each task signed by this device. What the run says for all of its tasks is signed with each of them. Sealed tasks have
 * a signature of their own. A machine lets an agent work in `bypass` only where a primary device has signed it, so a linked one is
 * refused here. */
export async function signRun(account: Account, run: CreateRun): Promise<CreateRun> {
  const isBypass = [run, ...run.tasks].some(({ permission }) => permission === "bypass");
  if (isBypass && !(await account.isPrimary())) {
    throw new Refused("This device is a linked one, and only a primary one lets an agent work without permission checks. Take another permission.");
  }
  const keys = new Set(run.tasks.flatMap(({ taskKey }) => taskKey ?? []));
  const now = account.credential.now();
  const sign = async (task: CreateTask): Promise<CreateTask> => {
    if (task.sealed !== undefined && task.sealed !== null) return task;
    const body = bodyOf(task, run, keys, now);
    return { ...task, ...(await signTask(JSON.stringify(body), body.machineId, account.keys.signer)) };
  };
  const tasks: CreateTask[] = [];
  for (const task of run.tasks) tasks.push(await sign(task));
  return { ...run, tasks };
}

function bodyOf(task: CreateTask, run: CreateRun, keys: ReadonlySet<string>, now: number): ClearTask {
  const { prompt, provider, model, workingDirectory, base, isolation } = task;
  const permission = task.permission ?? run.permission;
  const allowedTools = task.allowedTools ?? run.allowedTools ?? [];
  return {
    prompt: prompt ?? "",
    provider,
    ...(model != null && { model }),
    ...(workingDirectory != null && { workingDirectory }),
    ...(permission != null && { permission }),
    ...(allowedTools.length > 0 && { allowedTools }),
    isolation: isolation ?? "none",
    ...(base != null && { base }),
    ...(base != null && keys.has(base) && { baseIsTask: true as const }),
    machineId: task.machineId ?? run.machineId ?? null,
    nonce: newNonce(),
    at: new Date(now).toISOString(),
    expires: new Date(now + GOOD_FOR).toISOString(),
  };
}

/** What the owner wants of a task that there is, signed for the machine that has its agent's conversation or its worktree. `text`: what its
 * agent is told. Only of a message. */
export async function signOrder(account: Account, task: Pick<Schemas["Task"], "id" | "machineId">, action: Schemas["TaskAction"], text?: string): Promise<Signed> {
  const now = account.credential.now();
  const machineId = task.machineId ?? null;
  const order: Schemas["TaskOrder"] = {
    action,
    taskId: task.id,
    ...(text !== undefined && { text }),
    machineId,
    nonce: newNonce(),
    at: new Date(now).toISOString(),
    expires: new Date(now + ORDER_GOOD_FOR).toISOString(),
  };
  return signTask(JSON.stringify(order), machineId, account.keys.signer);
}

/** A task that is the first turn of a live session: what it does is sealed for its machine, and what is said stays in the session. */
export interface Turn extends Pick<SessionTask, "provider" | "workingDirectory" | "model" | "title" | "maxCostUsd"> {
  machineId: string;
  prompt: string;
  /** What the agent may do without asking (default `ask`). `bypass` only from a primary device. */
  mode?: SessionTask["mode"];
}

/** The members of a run's task that say so. */
export async function sealTurn(account: Account, { machineId, mode = "ask", ...turn }: Turn): Promise<Pick<CreateTask, "machineId" | "provider" | "sealed" | "session">> {
  const now = account.credential.now();
  const times = { at: new Date(now).toISOString(), expires: new Date(now + GOOD_FOR).toISOString() };
  const sealed = await sealedFor(account, machineId, { session: true, sessionId: uuidV7(now), mode, ...turn, nonce: newNonce(), ...times });
  return { machineId, provider: turn.provider as CreateTask["provider"], sealed, session: true };
}
