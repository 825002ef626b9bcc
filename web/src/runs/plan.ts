/** Reads a plan as `ensemble run` takes it: YAML or JSON. What is wrong with it is said in a sentence. Loaded when somebody writes one. */
import type { components } from "@ensemble/client";
import { isMap, LineCounter, parseDocument } from "yaml";

type Schemas = components["schemas"];
export type CreateRun = Schemas["CreateRun"];
type CreateTask = Schemas["CreateTask"];

/** A task as the graph draws it. */
export interface Drawn {
  id: string;
  title: string;
  dependsOn: string[];
}

export type Read = { body: CreateRun; tasks: Drawn[]; error?: undefined } | { error: string };

const LONGEST = 1 << 20;
const MOST_TASKS = 10_000;
const KEY = /^[A-Za-z_][\w-]{0,63}$/;
const OF_ALL = ["provider", "model", "workingDirectory", "machineId", "timeout", "timeoutMs", "retry", "permission", "allowedTools", "failOnDenial", "isolation", "maxCostUsd"];
const OF_PLAN = ["$schema", "title", "maxConcurrency", "spread", "machineId", "permission", "allowedTools", "failOnDenial", "maxCostUsd", "defaults", "tasks"];
const OF_TASK = [...OF_ALL, "key", "taskKey", "title", "prompt", "promptFile", "dependsOn", "base", "session"];
const WORDS: Record<string, readonly string[]> = {
  provider: ["claude", "codex", "gemini"], permission: ["plan", "edit", "bypass"], isolation: ["none", "worktree", "shared"],
};
/** How other members have to be, in words. */
const SHAPES: Record<string, [is: (value: unknown) => boolean, said: string]> = {
  retry: [isObject, "has members, as in {maxAttempts: 2}"], failOnDenial: [isFlag, "is true or false"], spread: [isFlag, "is true or false"],
  allowedTools: [isTexts, "is a list of texts"], dependsOn: [isTexts, "is a list of keys"], maxCostUsd: [isNumber, "is a number"],
  maxConcurrency: [isNumber, "is a number"], timeoutMs: [isNumber, "is a number"],
};

type Members = Record<string, unknown>;

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
function isFlag(value: unknown): boolean {
  return typeof value === "boolean";
}
function isNumber(value: unknown): boolean {
  return typeof value === "number" && Number.isFinite(value) && value > 0;
}
function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((one) => typeof one === "string");
}

class Wrong extends Error {}

export function readPlan(text: string): Read {
  if (text.length > LONGEST) return { error: "The plan is too long: at most 1 MB." };
  try {
    return read(text);
  } catch (error) {
    if (error instanceof Wrong) return { error: error.message };
    return { error: "It cannot be read: it is nested too deep, or refers to itself." };
  }
}

function read(text: string): Read {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true });
  const [first] = document.errors;
  if (first) {
    const { line, col } = lines.linePos(first.pos[0]);
    throw new Wrong(`Line ${line}, column ${col}: ${first.message}.`);
  }
  if (!isMap(document.contents)) throw new Wrong("A plan has members: at least `tasks`.");
  const plan = document.toJS({ maxAliasCount: 100 }) as Members;
  check(plan, OF_PLAN, "The plan");
  const defaults = plan["defaults"] ?? {};
  if (!isObject(defaults)) throw new Wrong("`defaults` has members, as in {provider: claude}.");
  check(defaults, OF_ALL, "`defaults`");
  const given = plan["tasks"];
  if (!Array.isArray(given) || given.length === 0) throw new Wrong("`tasks` is a list with at least one task.");
  if (given.length > MOST_TASKS) throw new Wrong(`A plan has at most ${MOST_TASKS.toLocaleString()} tasks.`);
  const common = { ...pick(plan, ["permission", "allowedTools", "failOnDenial", "maxCostUsd"]), ...defaults };
  const tasks = given.map((one, at) => taskOf(one, at, common));
  inOrder(tasks);
  const body = { ...pick(plan, ["title", "maxConcurrency", "spread", "machineId"]), tasks } as CreateRun;
  const drawn = tasks.map(({ taskKey, title, prompt, dependsOn }, at) => ({
    id: taskKey ?? String(at), title: title ?? taskKey ?? prompt?.slice(0, 80) ?? `Task ${at + 1}`, dependsOn: dependsOn ?? [],
  }));
  return { body, tasks: drawn };
}

function check(members: Members, known: readonly string[], where: string): void {
  for (const [name, value] of Object.entries(members)) {
    if (!known.includes(name)) throw new Wrong(`${where} has no member \`${name}\`. It can have ${known.filter((one) => one !== "$schema").join(", ")}.`);
    const words = WORDS[name];
    if (words && value !== null && !words.includes(String(value))) throw new Wrong(`${where}: \`${name}\` is one of ${words.join(", ")}.`);
    const shape = SHAPES[name];
    if (shape && value !== null && !shape[0](value)) throw new Wrong(`${where}: \`${name}\` ${shape[1]}.`);
    const isText = ["title", "model", "workingDirectory", "prompt", "base", "key", "taskKey", "machineId", "timeout"].includes(name);
    if (isText && value !== null && typeof value !== "string") throw new Wrong(`${where}: \`${name}\` is a text. Put it in quotes.`);
  }
}

function pick(members: Members, names: readonly string[]): Members {
  return Object.fromEntries(names.filter((name) => members[name] !== undefined && members[name] !== null).map((name) => [name, members[name]]));
}

function taskOf(given: unknown, at: number, common: Members): CreateTask {
  if (!isObject(given)) throw new Wrong(`Task number ${at + 1} has members, as in {key: look, prompt: "…"}.`);
  const key = given["key"] ?? given["taskKey"];
  const called = typeof key === "string" ? `Task ${key}` : `Task number ${at + 1}`;
  check(given, OF_TASK, called);
  const wrong = (what: string): never => {
    throw new Wrong(`${called}: ${what}`);
  };
  if (key !== undefined && !KEY.test(String(key))) wrong("its key begins with a letter, and has letters, digits, - and _ only.");
  if (given["promptFile"] !== undefined) wrong("a page cannot read files of your computer. Write the prompt here, or use `ensemble run`.");
  if (given["session"] === true) wrong("live sessions in a plan are begun with `ensemble run`.");
  const all: Members = { ...pick(common, OF_ALL), ...pick(given, OF_TASK) };
  const { prompt, provider, workingDirectory } = all as { prompt?: string; provider?: string; workingDirectory?: string };
  if (prompt === undefined || prompt.trim() === "") return wrong("it has no prompt.");
  if (/\{\{\s*vars\./.test(prompt)) wrong("variables are filled in by `ensemble run` only.");
  if (provider === undefined) wrong("it has no provider: claude, codex or gemini. Put it into `defaults` for all tasks.");
  if (workingDirectory === undefined) wrong("it has no workingDirectory, as in /home/me/project. Put it into `defaults` for all tasks.");
  if (!workingDirectory?.startsWith("/")) wrong("its workingDirectory begins with /.");
  const timeoutMs = given["timeout"] === undefined && given["timeoutMs"] === undefined ? milliseconds(common, wrong) : milliseconds(given, wrong);
  const names = ["title", "prompt", "provider", "model", "workingDirectory", "machineId", "retry", "permission", "allowedTools", "failOnDenial", "isolation", "base", "maxCostUsd", "dependsOn"];
  return { ...pick(all, names), ...(key !== undefined && { taskKey: key }), ...(timeoutMs !== undefined && { timeoutMs }) } as unknown as CreateTask;
}

/** A time such as `15m` or `1h30m`. */
function milliseconds({ timeout, timeoutMs }: Members, wrong: (what: string) => never): number | undefined {
  if (typeof timeoutMs === "number") return timeoutMs;
  if (typeof timeout !== "string") return undefined;
  const units: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
  const parts = [...timeout.matchAll(/(\d+)\s*(ms|s|m|h)\s*/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== timeout) wrong("its timeout is a time such as 90s, 15m or 1h30m.");
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * (units[unit ?? ""] ?? 0), 0);
}

/** Each dependency is a task of the plan, and nothing waits for itself. */
function inOrder(tasks: readonly CreateTask[]): void {
  const names = new Map<string, CreateTask>();
  for (const [at, task] of tasks.entries()) {
    const name = task.taskKey ?? String(at);
    if (names.has(name)) throw new Wrong(`Two tasks have the key ${name}.`);
    names.set(name, task);
  }
  const left = new Map<string, number>();
  const after = new Map<string, string[]>();
  for (const [name, { dependsOn }] of names) {
    left.set(name, dependsOn?.length ?? 0);
    for (const one of dependsOn ?? []) {
      if (!names.has(one)) throw new Wrong(`Task ${name} depends on ${one}, and no task has this key.`);
      after.set(one, [...(after.get(one) ?? []), name]);
    }
  }
  const free = [...left].filter(([, count]) => count === 0).map(([name]) => name);
  for (let name = free.pop(); name !== undefined; name = free.pop()) {
    left.delete(name);
    for (const one of after.get(name) ?? []) {
      const count = (left.get(one) ?? 0) - 1;
      left.set(one, count);
      if (count === 0) free.push(one);
    }
  }
  const [stuck] = left.keys();
  if (stuck !== undefined) throw new Wrong(`Task ${stuck} waits for itself: its dependencies go round in a circle.`);
}
