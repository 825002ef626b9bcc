/** Begins a session on a machine of the account, with a task that is sealed for it. */
import { mayPass, newId } from "@ensemble/client";
import type { Starting } from "@ensemble/client/account";
import type { Attachment } from "@ensemble/client/transcript";
import { mine } from "./account.ts";
import type { MachineRow } from "./machines.ts";
import { sessions } from "./sessions.ts";

export interface Wanted {
  machine: string;
  directory: string;
  provider: string;
  mode: "ask" | "edit" | "plan" | "bypass";
  /** Absent: the agent's own choice. */
  model: string | undefined;
  prompt: string;
  attachments: readonly Attachment[];
}

/** The longest title that is made from a prompt, in characters. */
const TITLE = 80;

/** What was sent and is not known to be done: the same wish resumes it, so that nothing begins twice. */
let unfinished: { wish: string; starting: Starting; session?: string; promptId: string } | undefined;

/** Sends it, waits until the machine has begun it, and gives its id. The prompt is signed for the session and sent there. */
export async function start(
  wanted: Wanted,
  onWaiting: (reason: string | undefined) => void,
  signal: AbortSignal,
): Promise<string> {
  const { machine, directory, provider, mode, model, prompt, attachments } = wanted;
  const text = prompt.trim();
  const line = text.split("\n")[0] ?? "";
  // Between words, where there are any.
  const title = line.length <= TITLE ? line : `${line.slice(0, TITLE - 1).replace(/\s+\S*$/, "")}…`;
  const wish = JSON.stringify([mine().userId, machine, directory, provider, mode, model, text, attachments]);
  let one = unfinished?.wish === wish ? unfinished : undefined;
  if (!one) {
    const starting = await mine().sessions.prepare({
      machineId: machine,
      directory,
      provider,
      mode,
      onWaiting,
      ...(model !== undefined && { model }),
      ...(title && { title }),
    });
    one = { wish, starting, promptId: newId() };
    unfinished = one;
  }
  try {
    one.session ??= (await one.starting.begin(signal)).id;
  } catch (error) {
    // What was refused or taken back is over. What has failed with the connection may have begun.
    if (signal.aborted || !mayPass(error)) unfinished = undefined;
    throw error;
  }
  if (text !== "" || attachments.length > 0) {
    const live = await mine().sessions.open(one.session);
    await live.prompt(text, { localId: one.promptId, attachments: [...attachments] });
  }
  unfinished = undefined;
  return one.session;
}

/** Directories in which sessions ran on this machine, newest first. */
export function recentDirectories(machine: string | undefined): string[] {
  const found = sessions.get().rows.filter((row) => row.machineId === machine && row.directory?.startsWith("/"));
  return [...new Set(found.map((row) => row.directory ?? ""))].slice(0, 12);
}

/** What the machine's runner offers, and why not. */
export function offersOf(
  machine: MachineRow | undefined,
): { provider: string; offered: boolean; reason: string | undefined }[] {
  return machine?.offers ?? [];
}
