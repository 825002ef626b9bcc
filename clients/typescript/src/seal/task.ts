// What a machine is to do, sealed for it and signed by a device of its owner.

import { encode, random, utf8, type Bytes } from "../bytes.js";
import type { Signer } from "../credential.js";
import { SealError } from "../errors.js";
import { isSigned } from "./ed25519.js";
import { openWith, sealTo, type BoxPair } from "./hpke.js";
import { asObject } from "./ring.js";

const PURPOSE = "ensemble-task-v1";

/** A task that begins a live session, or is its first turn. A machine does nothing when it does not know a member. */
export interface SessionTask {
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
  /** As it was submitted: with its placeholders. */
  prompt: string;
  provider: string;
  model?: string;
  workingDirectory?: string;
  permission?: "plan" | "ask" | "edit" | "bypass";
  allowedTools?: string[];
  isolation: "none" | "worktree" | "shared";
  base?: string;
  /** `base` is the key of another task of the run, and no git ref. */
  baseIsTask?: true;
  /** `null`: any machine of the owner. */
  machineId: string | null;
  nonce: string;
  at: string;
  expires: string;
}

export const newNonce = (): string => encode(random(16));

const binding = (owner: string, machine: string): string => `${PURPOSE}\n${owner}\n${machine}`;
const signedText = (machine: string | null, body: string): Bytes => utf8(`${PURPOSE}\n${machine ?? ""}\n${body}`);

/** What was signed in the clear, as the interface takes it. */
export interface Signed {
  signature: { key: string; sig: string };
  signedBody: string;
}

/** Signs a task in the clear for its machine. `null`: for any machine of the owner. */
export async function signTask(body: string, machine: string | null, signer: Signer): Promise<Signed> {
  return { signature: { key: signer.publicKey, sig: encode(await signer.sign(signedText(machine, body))) }, signedBody: body };
}

/** Whether this was signed for this machine, or for any. Whether the signer may have it done is for the caller to say. */
export async function isSignedTask({ signature: { key, sig }, signedBody }: Signed, machine: string): Promise<boolean> {
  return (await isSigned(key, signedText(machine, signedBody), sig)) || isSigned(key, signedText(null, signedBody), sig);
}

/** Seals a task to the machine's box key from the owner's checked device list. */
export async function sealTask(body: string, to: string, owner: string, machine: string, signer: Signer): Promise<string> {
  const sig = encode(await signer.sign(signedText(machine, body)));
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
  if (typeof body !== "string" || typeof key !== "string" || !(await isSigned(key, signedText(machine, body), sig))) {
    throw new SealError("signature", "The task is not signed by the key that it names.");
  }
  return { body, key };
}
