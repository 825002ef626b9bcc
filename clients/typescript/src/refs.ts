// Refs of answers. They are computed from the ids, so that a server cannot give one thing the short name of another.

import { sha256, utf8 } from "./protocol/bytes.js";
import { Distrust } from "./errors.js";

/** Crockford's base 32 in lower case. */
const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
/** The members of an answer that hold what has an id and a ref. */
const PARTS = ["sessions", "machines", "runs", "tasks", "changedTasks", "run"];

/** The ref of what has this id: the first 40 bits of SHA-256 of `ensemble-ref-v1`, a line feed and the id, five bits a character. */
export async function refOf(id: string): Promise<string> {
  const digest = await sha256(utf8(`ensemble-ref-v1\n${id}`));
  // 40 bits are a safe integer.
  const bits = digest.subarray(0, 5).reduce((all, byte) => all * 256 + byte, 0);
  return Array.from({ length: 8 }, (_, at) => ALPHABET.charAt(Math.floor(bits / 32 ** (7 - at)) % 32)).join("");
}

/** Refuses an answer in which something has a ref that does not belong to its id. */
export async function checkRefs(answer: unknown): Promise<void> {
  const checks: Promise<void>[] = [];
  collect(answer, checks);
  await Promise.all(checks);
}

function collect(answer: unknown, checks: Promise<void>[]): void {
  if (Array.isArray(answer)) return answer.forEach((one) => collect(one, checks));
  if (typeof answer !== "object" || answer === null) return;
  const { id, ref } = answer as { id?: unknown; ref?: unknown };
  if (typeof id === "string" && typeof ref === "string") checks.push(check(id, ref));
  for (const part of PARTS) collect((answer as Record<string, unknown>)[part], checks);
}

async function check(id: string, ref: string): Promise<void> {
  if ((await refOf(id)) !== ref) throw new Distrust("The server gave a ref that does not belong to the id. Do not trust it.");
}
