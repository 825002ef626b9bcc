// What people read of runs: what a device of theirs has signed. A server that answers with another run, or says that a task is another one,
// has a person sign for what they do not see.

import { Distrust } from "../errors.js";
import { sharesSessions } from "../seal/device-list.js";
import { readTask, type ClearTask } from "../seal/task.js";
import type { Account } from "./account.js";
import { everHad } from "./lists.js";
import type { components } from "../openapi.js";

type Schemas = components["schemas"];
type Signed = Schemas["Signed"];
type Run = Omit<Schemas["Run"], "tasks"> & { tasks: Schemas["Task"][] };

/** In the place of what nobody has signed. */
export const NOT_SIGNED = "not signed by your devices";

/** Behind the title of what is sealed for its machine. It is the server's word. */
export const NOT_CHECKED = "not checked: sealed";

/** What was found out of the tasks of a run, by their ids. */
export type CheckedTasks = Map<string, { signed: Signed; task: ClearTask | undefined }>;

/** Puts what was signed in the place of what the server says of a run. Afterwards a task has `signed` only when that is good. `known`: what was
 * found out before. */
export async function takeSigned<R extends Run>(
  account: Account,
  id: string,
  run: R,
  known: CheckedTasks = new Map(),
): Promise<R> {
  if (run.id !== id && run.ref !== id) {
    throw new Distrust("The server answered with another run than the one that was asked for. Do not trust it.");
  }
  const signers = new Map<string, Promise<boolean>>();
  const counts = (key: string): Promise<boolean> => {
    const found = signers.get(key) ?? isOwn(account, key);
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
  signed: Signed,
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

/** Whether a key is or was that of a device which signs for the account. */
async function isOwn(account: Account, key: string): Promise<boolean> {
  const { list } = await account.own();
  const role = list.device(key)?.role;
  if (role !== undefined) return sharesSessions(role);
  return everHad(account.client, account.userId, list.body.account, key);
}
