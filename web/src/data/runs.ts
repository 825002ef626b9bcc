/** Runs of tasks: their list, and one of them followed live. */
import { Distrust, followRun, isProblem, newId } from "@ensemble/client";
import {
  doubt,
  drawOnce,
  Draws,
  NOT_CHECKED,
  NOT_SIGNED,
  sealTurn,
  signOrder,
  signRun,
  takeSigned,
  withIds,
  type CheckedTasks,
  type Once,
  type Turn,
} from "@ensemble/client/account";
import type { components } from "@ensemble/client";
import { Store } from "../base/store.ts";
import { say } from "../base/toast.tsx";
import { mine } from "./account.ts";
import { textOf } from "./failure.ts";
import { keepTrying, mayHeal } from "./keep-trying.ts";
import { keep, recall } from "./kept.ts";
import { whileSeen } from "./seen.ts";
import { ShownChanges } from "./shown-changes.ts";

type Schemas = components["schemas"];
export type Run = Omit<Schemas["Run"], "tasks">;
export type Task = Schemas["Task"];
export type TaskChanges = Schemas["TaskChanges"];

/** How much of the end of an output is kept. */
const MOST_OUTPUT = 400_000;
const PAGE = 50;
const KEPT_AFTER_MS = 1_000;
/** How long one call waits for the machine, and how long all of them do. */
const ONE_WAIT_MS = 20_000;
const LONGEST_WAIT_MS = 10 * 60_000;

const OTHER_RUN = "The server answered with another run than the one that was asked for. Do not trust it.";

/** A server that lies has several signed copies then. */
const DRAWN_AGAIN =
  "The server says that an id is already taken, so the plan is being signed again with new ids. No machine runs a task twice.";

/** How often any run of the account was said to have changed. */
export const runChanges = new Store(0);

/** A page of runs, newest first. */
export async function runsPage(cursor?: string): Promise<{ runs: Run[]; nextCursor: string | undefined }> {
  const { client } = mine();
  const query = { limit: PAGE, ...(cursor !== undefined && { cursor }) };
  const page = await client.call("GET", "/v1/orchestrator/runs", { query });
  return { runs: page.runs, nextCursor: page.nextCursor ?? undefined };
}

/** A task to send. `turn` is what is sealed for its machine, where it is the first turn of a live session. */
export type PlannedTask = Schemas["CreateTask"] & { turn?: Turn };
export type Planned = Omit<Schemas["CreateRun"], "tasks"> & { tasks: PlannedTask[] };

/** What was sent and not answered: the same plan again is the same run. */
let sent: { plan: string; key: string; body: Schemas["CreateRun"] } | undefined;

/** Begins a run, and gives its id. */
export async function submitPlan(planned: Planned): Promise<string> {
  const plan = JSON.stringify(planned);
  const account = mine();
  const { client } = account;
  const isChosen = planned.id != null || planned.tasks.some(({ id }) => id != null);
  const draws = new Draws();
  const once = planned.tasks.map(() => drawOnce(account));
  for (;;) {
    const again = sent?.plan === plan ? sent : undefined;
    const one = again ?? { plan, key: newId(), body: await signed(account, planned, once) };
    sent = one;
    try {
      const params = { header: { "Idempotency-Key": one.key } };
      const run = await client.call("POST", "/v1/orchestrator/runs", { body: one.body, ...params });
      if (run.id !== one.body.id) throw new Distrust(OTHER_RUN);
      sent = undefined;
      return run.id;
    } catch (error) {
      const isTaken = isProblem(error, "CONFLICT");
      if (isTaken) sent = undefined;
      // What was sent before may have been a run that was deleted since, and is not begun again by itself.
      if (again !== undefined || isChosen || !draws.mayDrawAgain(error)) throw error;
      say(DRAWN_AGAIN);
    }
  }
}

/** A plan with ids that are drawn here, signed and sealed. */
async function signed(
  account: ReturnType<typeof mine>,
  planned: Planned,
  once: readonly Once[],
): Promise<Schemas["CreateRun"]> {
  const named = withIds(account, planned);
  const tasks: Schemas["CreateTask"][] = [];
  for (const [position, { turn, ...task }] of named.tasks.entries()) {
    const ids = { runId: named.id, taskId: task.id };
    tasks.push(turn ? { ...task, ...(await sealTurn(account, ids, turn, once[position])) } : task);
  }
  return signRun(account, { ...named, tasks }, once);
}

/** Whether a task is not what one of the account's devices has signed, although the server does not call it sealed. */
export const isNotSigned = (task: Task): boolean => doubt(task) === NOT_SIGNED;
export { doubt, NOT_CHECKED };

export interface RunView {
  run: Run | undefined;
  tasks: readonly Task[];
  error: string | undefined;
  /** It is shown as it was kept at this time: the server has not been reached since. */
  keptAt?: string | undefined;
}

/** Tasks of a run that are kept: those that its screen shows at first. */
const MOST_KEPT = 100;

/** One run, as it changes. */
export class RunFeed {
  readonly view = new Store<RunView>({ run: undefined, tasks: [], error: undefined });
  readonly id: string;
  /** What is known about its tasks. */
  readonly #checked: CheckedTasks = new Map();
  readonly #shown = new ShownChanges();

  constructor(id: string) {
    this.id = id;
  }

  watch(): () => void {
    const stop = new AbortController();
    const name = `run ${this.id}`;
    void recall<Pick<RunView, "run" | "tasks">>(name).then((kept) => {
      if (kept && !this.view.get().run) this.view.set({ ...kept.value, error: undefined, keptAt: kept.at });
    });
    const keepIt = (): void => {
      const { run, tasks, keptAt } = this.view.get();
      if (run && keptAt === undefined) void keep("seen", name, { run, tasks: tasks.slice(0, MOST_KEPT) });
    };
    // What has changed is kept a moment later, once for all that changes together.
    let timer: ReturnType<typeof setTimeout> | undefined;
    const unsubscribe = this.view.subscribe(
      () =>
        (timer ??= setTimeout(() => {
          timer = undefined;
          keepIt();
        }, KEPT_AFTER_MS)),
    );
    stop.signal.addEventListener("abort", () => {
      unsubscribe();
      if (timer === undefined) return;
      clearTimeout(timer);
      keepIt();
    });
    const failed = (error: unknown): void => {
      // The line over the page says that there is no connection, and what was kept is shown.
      if (mayHeal(error) && this.view.get().run) return;
      const text = isProblem(error, "NOT_FOUND") ? "There is no run at this address. It may have been deleted." : textOf(error);
      this.view.update((before) => ({ ...before, error: text }));
    };
    void whileSeen((seen) => keepTrying(() => this.#follow(seen), failed, seen), stop.signal);
    return () => stop.abort();
  }

  async cancel(): Promise<void> {
    const { client } = mine();
    await client.call("POST", "/v1/orchestrator/runs/{id}/cancel", { path: { id: this.id } });
  }

  /** Queues again what ended without completing. */
  async retry(): Promise<void> {
    const { client } = mine();
    await client.call("POST", "/v1/orchestrator/runs/{id}/retry", { path: { id: this.id } });
    await this.#read(new AbortController().signal);
  }

  /** What a task has changed in its worktree, as a unified diff. */
  async diff(task: Task): Promise<string> {
    const path = `/v1/orchestrator/runs/${encodeURIComponent(this.id)}/tasks/${encodeURIComponent(task.id)}/diff`;
    const bytes = await (await mine().client.open(path, {}, new AbortController().signal)).arrayBuffer();
    if (task.changes) await this.#shown.saw(task.id, task.changes, bytes);
    return new TextDecoder().decode(bytes);
  }

  /** Has the machine bring what a task has changed into its directory, or remove its worktree, as it is shown. Returns what has become of it.
   * `unseen`: also what could not be shown. */
  async order(task: Task, action: "apply" | "discard", unseen = false): Promise<TaskChanges> {
    const account = mine();
    const { client } = account;
    if (!task.changes) throw new Error("The server does not know what the task changed.");
    // Signed once: the same order again is one order.
    const body = await signOrder(account, task, {
      action,
      seen: await this.#shown.seen(task.id, task.changes, unseen),
      unseen,
    });
    const params = { path: { id: this.id, taskId: task.id }, query: { waitMs: ONE_WAIT_MS } };
    const until = Date.now() + LONGEST_WAIT_MS;
    for (;;) {
      const { changes } =
        action === "apply"
          ? await client.call("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/apply", { ...params, body })
          : await client.call("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/discard", { ...params, body });
      if (!changes) throw new Error("The server does not know what the task changed.");
      await this.#read(new AbortController().signal);
      const isOpen = changes.state === "applying" || changes.state === "discarding";
      if (!isOpen || changes.waitingFor === "machine" || Date.now() > until) return changes;
    }
  }

  /** Says something more to the agent of a task that has ended. The same `messageId` again sends nothing new. */
  async say(task: Task, text: string, messageId: string): Promise<void> {
    const account = mine();
    const { client } = account;
    const body = { text, messageId, ...(await signOrder(account, task, { action: "message", text })) };
    const params = { path: { id: this.id, taskId: task.id } };
    await client.call("POST", "/v1/orchestrator/runs/{id}/tasks/{taskId}/messages", { ...params, body });
    await this.#read(new AbortController().signal);
  }

  /** Deletes the run with its outputs. */
  async remove(): Promise<void> {
    const { client } = mine();
    await client.call("DELETE", "/v1/orchestrator/runs/{id}", { path: { id: this.id } });
  }

  async #read(signal: AbortSignal): Promise<number> {
    const account = mine();
    const { client } = account;
    const answer = await client.call("GET", "/v1/orchestrator/runs/{id}", { path: { id: this.id }, signal });
    // What a person says or brings in next is for this one, as it was signed.
    const { tasks, ...run } = await takeSigned(account, this.id, answer, this.#checked);
    this.view.set({ run, tasks, error: undefined });
    return run.version;
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const after = await this.#read(signal);
    for await (const { data } of followRun(mine().client, this.id, { signal, after })) {
      // What has changed comes as counts and states; the run says the rest.
      if (data.changed) await this.#read(signal);
    }
    // The run has ended. A retry begins it again.
    if (!signal.aborted) await this.#read(signal);
  }
}

/** The output of a task, its end, as it comes. `onText` gets all that is kept. */
export async function followOutput(
  run: string,
  task: string,
  onText: (text: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const { client } = mine();
  const path = `/v1/orchestrator/runs/${encodeURIComponent(run)}/tasks/${encodeURIComponent(task)}/output?follow=true`;
  const response = await client.open(path, {}, signal);
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      text += decoder.decode(next.value, { stream: true });
      if (text.length > MOST_OUTPUT) text = `…${text.slice(-MOST_OUTPUT / 2)}`;
      onText(text);
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
