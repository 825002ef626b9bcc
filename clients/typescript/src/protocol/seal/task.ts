// What a machine is to do, sealed for it and signed by a device of its owner.

import { digestText, encode, random, sha256, utf8, type Bytes } from "../bytes.js";
import { SealError } from "../../errors.js";
import { isSigned, type Signer } from "../ed25519.js";
import { openWith, sealTo, type BoxPair } from "../hpke.js";
import { asObject } from "./ring.js";

/** The first line of what is signed under a seal, and what it is sealed as. */
const PURPOSE = "ensemble-task-sealed-v2";

/** A task that begins a live session, or is its first turn. A machine does nothing when it does not know a member. */
export interface SessionTask {
  /** UUIDs of version 7 that the signer chooses, as the session's is. */
  runId: string;
  taskId: string;
  session: "start" | true;
  /** What the agent is to do. Only of a first turn. */
  prompt?: string;
  /** A UUID of version 7 that the signer chooses. */
  sessionId: string;
  provider: string;
  /** An absolute path on the machine. */
  workingDirectory: string;
  mode: "ask" | "edit" | "plan" | "bypass";
  model?: string;
  title?: string;
  /** When the session has cost so much, its people are asked before another turn begins. */
  maxCostUsd?: number;
  /** 16 random bytes. The machine does nothing else under the same one. */
  nonce: string;
  /** The signer's clock, RFC 3339. */
  at: string;
  /** At most seven days after `at`. */
  expires: string;
}

/** A task in the clear, as it is signed. A machine does nothing when it does not know a member. */
export interface ClearTask {
  runId: string;
  taskId: string;
  /** What people read about its run and about it. */
  runTitle?: string;
  title?: string;
  taskKey?: string;
  /** Its place among the tasks of its run, from 0 on. */
  position?: number;
  /** As it was submitted: with its placeholders. */
  prompt: string;
  provider: string;
  model?: string;
  workingDirectory?: string;
  permission?: "plan" | "ask" | "edit" | "bypass";
  allowedTools?: string[];
  isolation: "none" | "worktree" | "shared";
  /** The tasks whose outputs the prompt takes, in the order in which it first names their keys. */
  dependsOn?: string[];
  /** What its worktree begins with: what another task of the run has left, or a git ref. */
  base?: { task: string } | { ref: string };
  /** `null`: any machine of the owner. */
  machineId: string | null;
  nonce: string;
  at: string;
  expires: string;
}

export const newNonce = (): string => encode(random(16));

const binding = (owner: string, machine: string): string => `${PURPOSE}\n${owner}\n${machine}`;
const sealedText = (machine: string, body: string): Bytes => utf8(`${PURPOSE}\n${machine}\n${body}`);

/** What is signed in the clear: a task, a message to its agent, or an order about what it has changed. Each has a first line of its own, so
 * that one is never taken for another. */
export type SignedAs = "clear" | "message" | "order";

const signedText = (what: SignedAs, machine: string | null, body: string): Bytes =>
  utf8(`ensemble-task-${what}-v2\n${machine ?? ""}\n${body}`);

/** What was signed in the clear, as the interface takes it. */
export interface Signed {
  signature: { key: string; sig: string };
  signedBody: string;
}

/** Signs a text in the clear for its machine. `null`: for any machine of the owner. */
export async function signTask(
  body: string,
  machine: string | null,
  signer: Signer,
  what: SignedAs = "clear",
): Promise<Signed> {
  return {
    signature: { key: signer.publicKey, sig: encode(await signer.sign(signedText(what, machine, body))) },
    signedBody: body,
  };
}

/** Whether this was signed for this machine, or for any. Whether the signer may have it done is for the caller to say. */
export async function isSignedTask(
  { signature: { key, sig }, signedBody }: Signed,
  machine: string,
  what: SignedAs = "clear",
): Promise<boolean> {
  return (
    (await isSigned(key, signedText(what, machine, signedBody), sig)) || isSigned(key, signedText(what, null, signedBody), sig)
  );
}

/** The task that was signed, for whatever machine, so that a person can be shown it. Undefined: it is not signed so. Whether the signer counts
 * is for the caller to say. */
export async function readTask({ signature: { key, sig }, signedBody }: Signed): Promise<ClearTask | undefined> {
  let task: Partial<ClearTask> | null;
  try {
    task = JSON.parse(signedBody) as Partial<ClearTask> | null;
  } catch {
    return undefined;
  }
  if (typeof task !== "object" || typeof task?.prompt !== "string") return undefined;
  const isText = (value: unknown) => value === undefined || typeof value === "string";
  if (![task.title, task.runTitle, task.taskKey, task.runId, task.taskId].every(isText)) return undefined;
  return (await isSigned(key, signedText("clear", task.machineId ?? null, signedBody), sig)) ? (task as ClearTask) : undefined;
}

/** The digest of a diff, as people are shown it. */
export const diffDigest = async (diff: ArrayBuffer): Promise<string> => encode(await sha256(new Uint8Array(diff)));

/** What of changes is shown in a list. */
export interface ChangesList {
  files: readonly { path: string; kind: string; added?: number | null; removed?: number | null }[];
  fileCount: number;
  added: number;
  removed: number;
}

/** The digest of a list of changed files with its counts, as people are shown it. */
export function listDigest({ files, fileCount, added, removed }: ChangesList): Promise<string> {
  const list = [
    fileCount,
    added,
    removed,
    files.map((file) => [file.path, file.kind, file.added ?? null, file.removed ?? null]),
  ];
  return digestText(`ensemble-changes-v1\n${JSON.stringify(list)}`);
}

/** The keys in a prompt whose outputs it takes, each once, as it names them. */
export function outputKeys(prompt: string): string[] {
  const keys = new Set<string>();
  let rest = prompt;
  for (let at = rest.indexOf("{{"); at >= 0; at = rest.indexOf("{{")) {
    const isLiteral = rest.charAt(at - 1) === "\\";
    const found = isLiteral ? null : /^\{\{tasks\.([A-Za-z_][A-Za-z0-9_-]{0,63})\.output\}\}/.exec(rest.slice(at));
    if (found?.[1] !== undefined) keys.add(found[1]);
    // One brace only, so that the placeholder in `{{{tasks.a.output}}` is found.
    rest = rest.slice(at + (isLiteral ? 2 : (found?.[0].length ?? 1)));
  }
  return [...keys];
}

/** Seals a task to the machine's box key from the owner's checked device list. */
export async function sealTask(body: string, to: string, owner: string, machine: string, signer: Signer): Promise<string> {
  const sig = encode(await signer.sign(sealedText(machine, body)));
  const text = utf8(JSON.stringify({ body, key: signer.publicKey, sig }));
  return sealTo(to, text, binding(owner, machine), PURPOSE);
}

/** Opens a task and checks its signature. Whether the signer may have it done is for the caller to say. */
export async function openTask(
  sealed: string,
  pair: BoxPair,
  owner: string,
  machine: string,
): Promise<{ body: string; key: string }> {
  const { body, key, sig } = asObject(await openWith(pair, sealed, binding(owner, machine), PURPOSE));
  if (typeof body !== "string" || typeof key !== "string" || !(await isSigned(key, sealedText(machine, body), sig))) {
    throw new SealError("signature", "The task is not signed by the key that it names.");
  }
  return { body, key };
}
