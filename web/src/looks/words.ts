/** The words of the tabs Changes and Files. */
import { LookRefused, MachineAway } from "@ensemble/client/looks";
import { clock } from "../base/words.ts";
import { textOf } from "../data/failure.ts";
import type { GitState, Since } from "../data/looks.ts";

export const NAMES = { chat: "Chat", changes: "Changes", files: "Files" };
export type Tab = keyof typeof NAMES;
export const SINCE: Record<Since, string> = { begin: "Since the session began", now: "Not committed" };

export const NOT_FOR_GUESTS = "Files are shown to people who may approve.";
export const NO_CONNECTION =
  "There is no connection. Files and changes are read from the machine each time, and are not kept here.";
export const COMMIT = "Commit what has changed in this directory. Say in the message what was changed, and why.";
export const BINARY = "There are no lines to show: the file is empty or no text, or only its name or its rights have changed.";
export const NO_CHANGES: Record<Since, string> = {
  begin: "Nothing has changed since the session began.",
  now: "Everything is committed.",
};
export const SECRETS = "This file is not in git. It may hold secrets.";
export const MORE_NAMES = "There are more. Only the first ones are listed.";
export const CANNOT_OPEN = "cannot be opened";
export const TOO_LONG = "It is not shown: it has more than 512 KiB.";
export const NO_TEXT = "It is not shown: it is neither a text nor a picture.";

/** That a machine is away, and since when. */
export const awayWords = (machine: string | undefined, since: string | undefined): string =>
  `${machine ?? "The machine"} is away${since === undefined ? "" : ` since ${clock(since)}`}. What is on it is shown when it is back.`;

const REFUSED: Record<string, string> = {
  stale: "The machine’s clock differs from this device’s by more than five minutes. Correct the one that is wrong.",
};

/** What to say of a look that failed. A machine says itself what else it refuses, and what to do. */
export function lookWords(error: unknown): string {
  if (error instanceof MachineAway) return "The machine did not answer: it is not connected. Try again when it is back.";
  return (error instanceof LookRefused && REFUSED[error.code]) || textOf(error);
}

const number = (count: number): string => count.toLocaleString();

/** Of how many files the changes are, and of how many lines. */
export function counted({ fileCount, files, added, removed }: GitState, since: Since): string {
  if (fileCount === 0) return NO_CHANGES[since];
  const all = `${fileCount === 1 ? "1 file" : `${number(fileCount)} files`}, +${number(added)} −${number(removed)}`;
  return files.length < fileCount ? `${all}. The first ${number(files.length)} are listed.` : all;
}

/** How a branch stands to the one that it follows. */
export function branchWords({ branch, head, upstream, ahead, behind }: GitState): string {
  if (head === undefined) return "has no commit yet";
  if (branch === undefined) return `No branch: at ${head.slice(0, 8)}`;
  if (upstream === undefined) return "";
  if (!ahead && !behind) return `as ${upstream}`;
  if (!ahead) return `${number(behind ?? 0)} behind ${upstream}`;
  return `${number(ahead)} ahead of ${upstream}${behind ? `, ${number(behind)} behind` : ""}`;
}

/** The size of a file. */
export function size(bytes: number): string {
  if (bytes < 1_024) return bytes === 1 ? "1 byte" : `${number(bytes)} bytes`;
  const kib = bytes / 1_024;
  return kib < 1_024 ? `${number(Math.round(kib))} KiB` : `${(kib / 1_024).toFixed(1)} MiB`;
}
