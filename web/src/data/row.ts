/** A session as lists show it. */

export interface SessionRow {
  id: string;
  ref: string;
  ownerId: string;
  /** Opened with the session's key; what stands in for it when that cannot be done. */
  title: string;
  directory: string | undefined;
  /** The name of its machine: for an own session from the signed list, else from the machine. */
  host: string | undefined;
  agent: string | undefined;
  machineId: string | undefined;
  attention: "none" | "permission" | "question" | "finished" | "failed";
  /** Another one for each thing that it wants. */
  attentionId?: string | undefined;
  /** Open requests. */
  open: number;
  online: boolean;
  /** When its machine was last there. */
  lastActiveAt?: string | undefined;
  thinking: boolean;
  /** Why its machine cannot write in it, by the server's word. */
  cannotWrite?: "key_refused" | "key_not_given" | "key_of_stranger" | "list_unread" | undefined;
  ended: boolean;
  archived: boolean;
  hosted: boolean;
  accessLevel: "view" | "edit" | "admin" | "owner";
  updatedAt: string;
}

export type RowState = "ask" | "waits" | "working" | "idle" | "failed" | "away" | "ended";

export const WORDS: Record<RowState, string> = {
  ask: "Needs you",
  waits: "Waits for an answer",
  working: "Working",
  idle: "Ready",
  failed: "Failed",
  away: "Machine away",
  ended: "Ended",
};

/** Whether this person may answer, as far as a list knows it: who only reads never may. Of those who write, the machine says who may. */
const mayAnswer = (row: SessionRow): boolean => row.accessLevel !== "view";

/** What a list shows about it: the first that applies. */
export function stateOf(row: SessionRow): RowState {
  const isAsking = row.attention === "permission" || row.attention === "question";
  if (isAsking && mayAnswer(row)) return "ask";
  if (row.ended) return "ended";
  if (row.attention === "failed") return "failed";
  if (!row.hosted) return "idle";
  if (!row.online) return "away";
  if (isAsking) return "waits";
  return row.thinking ? "working" : "idle";
}

/** An own session that has come to an end, and was not looked at since. */
export const isNew = (row: SessionRow): boolean =>
  row.accessLevel === "owner" && (row.attention === "finished" || row.attention === "failed");
