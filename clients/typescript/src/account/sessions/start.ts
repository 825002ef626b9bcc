// Begins a live session on a machine of the context. What the machine is to do is sealed for it and signed here, so the server in
// between can neither read nor change it.

import { uuidV7 } from "../../protocol/bytes.js";
import { newId } from "../../client.js";
import { Distrust, Refused } from "../../errors.js";
import { newNonce, type SessionTask } from "../../protocol/seal/task.js";
import type { Context } from "../context.js";
import { Draws, sealedFor } from "../tasks.js";
import type { Session } from "./known.js";
import { readSession } from "./read.js";
import type { components } from "../../openapi.js";

type Schemas = components["schemas"];

/** What to begin, and where. */
export interface Start {
  machineId: string;
  /** An absolute path on the machine. */
  directory: string;
  provider: Schemas["Provider"];
  model?: string;
  /** What the agent may do without asking (default `ask`). `bypass` only from a primary device. */
  mode?: SessionTask["mode"];
  /** It is encrypted. */
  title?: string;
  /** Called when the machine has not begun it yet, with the server's reason. */
  onWaiting?: (reason: string | undefined) => void;
}

/** A machine that is offline for longer does not begin it any more, in milliseconds. */
const GOOD_FOR = 24 * 3_600_000;
/** How long the machine may take to begin it, in milliseconds. */
const TIMEOUT = 120_000;

/** A session that is to begin: signed and sealed, with its id. */
export class Starting {
  #key = newId();
  /** It was sent, and perhaps was taken. */
  #isSent = false;

  private constructor(
    private readonly context: Context,
    private readonly start: Start,
    readonly sessionId: string,
    private sealed: string,
    private ids: Starts,
  ) {}

  static async prepare(context: Context, start: Start): Promise<Starting> {
    if (!/^(\/|~(\/|$))/.test(start.directory))
      throw new Refused("The directory must be a path on the machine that begins with / or with ~/.");
    const sessionId = uuidV7(context.credential.now());
    const { sealed, ids } = await Starting.#drawn(context, start, sessionId);
    return new Starting(context, start, sessionId, sealed, ids);
  }

  /** Seals it under ids that are drawn here. */
  static async #drawn(context: Context, start: Start, sessionId: string): Promise<{ sealed: string; ids: Starts }> {
    const { machineId, mode = "ask" } = start;
    const now = context.credential.now();
    const ids = { runId: uuidV7(now), taskId: uuidV7(now) };
    const task: SessionTask = {
      ...ids,
      session: "start",
      sessionId,
      provider: start.provider,
      workingDirectory: start.directory,
      mode,
      ...(start.model !== undefined && { model: start.model }),
      ...(start.title !== undefined && { title: start.title }),
      nonce: newNonce(),
      at: new Date(now).toISOString(),
      expires: new Date(now + GOOD_FOR).toISOString(),
    };
    return { sealed: await sealedFor(context, machineId, task), ids };
  }

  /** Sends it, and waits until the machine has begun it. After a failure of the connection it can be called again: that never begins
   * a second session. */
  async begin(signal?: AbortSignal): Promise<Session> {
    const { context, sessionId } = this;
    const { userId } = context;
    const { machineId } = this.start;
    const draws = new Draws();
    for (;;) {
      const isFirst = !this.#isSent;
      this.#isSent = true;
      try {
        await this.#send();
        break;
      } catch (error) {
        // What was sent before may have been taken, and is not begun twice.
        if (!isFirst || !draws.mayDrawAgain(error)) throw error;
      }
      Object.assign(this, await Starting.#drawn(context, this.start, sessionId));
      this.#key = newId();
      this.#isSent = false;
    }
    const { ids } = this;
    const done = await begun(context, ids, this.start, signal);
    // Another session is not the one that was asked for, whatever the server says.
    if (done.sessionId !== sessionId)
      throw new Distrust("The server names another session than the one that was asked for. Do not trust it.");
    const session = await readSession(context, sessionId);
    if (session.ownerId !== userId || session.machineId !== machineId) {
      throw new Distrust("The session is not on the machine that was asked for. Nothing was sent to it.");
    }
    return session;
  }

  async #send(): Promise<void> {
    const {
      context: { client },
      sealed,
      ids,
    } = this;
    const { provider, machineId } = this.start;
    const body = {
      id: ids.runId,
      title: "Start of a session",
      tasks: [{ id: ids.taskId, provider, machineId, timeoutMs: TIMEOUT, sealed, session: "start" as const, dependsOn: [] }],
    };
    const header = { "Idempotency-Key": this.#key };
    const run = await client.call("POST", "/v1/orchestrator/runs", { header, body });
    if (run.id !== ids.runId) throw new Distrust(OTHER_RUN);
  }
}

type Starts = Pick<SessionTask, "runId" | "taskId">;
const OTHER_RUN = "The server answered with another run than the one that was asked for. Do not trust it.";

/** Waits until the machine has begun it. When the signal is aborted it is taken back. */
async function begun(
  context: Context,
  { runId, taskId }: Starts,
  { onWaiting }: Start,
  signal?: AbortSignal,
): Promise<Schemas["Task"]> {
  const { client } = context;
  const path = { id: runId };
  for (let isFirst = true; ; isFirst = false) {
    try {
      const body = { waitFor: "terminal" as const, timeoutMs: isFirst ? 3_000 : 30_000 };
      await client.call("POST", "/v1/orchestrator/runs/{id}/pend", { path, body, ...(signal && { signal }) });
    } catch (error) {
      if (signal?.aborted)
        await client.call("POST", "/v1/orchestrator/runs/{id}/cancel", { path, body: { reason: "interrupted" } });
      throw error;
    }
    const { tasks } = await client.call("GET", "/v1/orchestrator/runs/{id}", { path });
    const [task] = tasks;
    if (!task) throw new Refused("The server has lost the task.");
    if (task.id !== taskId) throw new Distrust(OTHER_RUN);
    if (task.error) throw new Refused(`The machine did not begin the session: ${task.error.message} (${task.error.code})`);
    if (task.status === "completed") return task;
    if (task.status === "cancelled" || task.status === "failed")
      throw new Refused("It was ended before the machine had begun the session.");
    onWaiting?.(task.waitingReason ?? undefined);
  }
}
