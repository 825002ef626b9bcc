import { serverNow } from "../base/server-clock.ts";

/** States of runs and tasks in words, and the colour of their dot. */
export const RUN_WORDS: Record<string, string> = {
  queued: "Queued",
  running: "Running",
  canceling: "Being cancelled",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
};
export const TASK_WORDS: Record<string, string> = {
  queued: "Queued",
  dispatching: "Starting",
  running: "Running",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
  dependency_failed: "Not started: what it depends on has failed",
};
export const DOTS: Record<string, string> = {
  queued: "",
  dispatching: "working",
  running: "working",
  canceling: "working",
  completed: "idle",
  failed: "bad",
  dependency_failed: "bad",
  cancelled: "",
};

/** A duration, as in "2 min 5 s". */
export function lasted(from: string | null | undefined, to: string | null | undefined, now = serverNow()): string {
  if (!from) return "";
  const seconds = Math.max(0, Math.round(((to ? Date.parse(to) : now) - Date.parse(from)) / 1_000));
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
}
