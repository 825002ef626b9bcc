/** Reads a plan as `ensemble run` takes it: YAML or JSON. What is wrong with it is said in a sentence. Loaded when a plan is written. */
import { outputKeys, type Turn } from "@ensemble/client/account";
import { isMap, LineCounter, parseDocument } from "yaml";
import type { Planned, PlannedTask } from "../data/runs.ts";
import { Variables } from "./variables.ts";

/** A task as the graph draws it. */
export interface Drawn {
  id: string;
  title: string;
  dependsOn: string[];
}

/** What a plan needs and does not contain. */
interface Needed {
  variables: string[];
  /** Files with prompts, by the names that the plan gives them. */
  files: string[];
}

export type Read = Needed & ({ body: Planned; tasks: Drawn[]; error?: undefined } | { error: string });

/** What a plan has in addition to its text. */
export interface Given {
  values: Readonly<Record<string, string>>;
  /** What was chosen for each file. */
  files: Readonly<Record<string, string>>;
  /** The machines that the server shows. `name` is the one in the signed list; empty without one. */
  machines: readonly { id: string; ref: string; name: string }[];
  /** The names of the machines in the signed list that the server does not show. */
  hidden: readonly string[];
}

const LONGEST = 1 << 20;
const MOST_COST = 1_000_000;
const MOST_TASKS = 10_000;
const KEY = /^[A-Za-z_][\w-]{0,63}$/;
const OF_ALL = [
  "provider",
  "model",
  "workingDirectory",
  "machineId",
  "timeout",
  "timeoutMs",
  "retry",
  "permission",
  "allowedTools",
  "failOnDenial",
  "isolation",
  "maxCostUsd",
];
const OF_PLAN = [
  "$schema",
  "title",
  "maxConcurrency",
  "spread",
  "machineId",
  "permission",
  "allowedTools",
  "failOnDenial",
  "maxCostUsd",
  "defaults",
  "tasks",
];
const OF_TASK = [...OF_ALL, "key", "taskKey", "title", "prompt", "promptFile", "dependsOn", "base", "session"];
const WORDS: Record<string, readonly string[]> = {
  permission: ["plan", "ask", "edit", "bypass"],
  isolation: ["none", "worktree", "shared"],
};
/** What other members have to be, in words. */
const SHAPES: Record<string, [is: (value: unknown) => boolean, said: string]> = {
  provider: [
    (value) => typeof value === "string" && /^(?!demo$)[a-z][a-z0-9-]{0,31}$/.test(value),
    "is claude, codex, gemini or another that a machine offers (never demo): a-z, 0-9 and -, and first a letter",
  ],
  retry: [isObject, "has members, as in {maxAttempts: 2}"],
  failOnDenial: [isFlag, "is true or false"],
  session: [isFlag, "is true or false"],
  spread: [isFlag, "is true or false"],
  allowedTools: [isTexts, "is a list of texts"],
  dependsOn: [isTexts, "is a list of keys"],
  maxCostUsd: [(value) => isNumber(value) && value <= MOST_COST, "is more than 0, and at most 1000000"],
  maxConcurrency: [isNumber, "is a number"],
  timeoutMs: [isNumber, "is a number"],
};

type Members = Record<string, unknown>;

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
function isFlag(value: unknown): boolean {
  return typeof value === "boolean";
}
function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value > 0;
}
function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((one) => typeof one === "string");
}

class Wrong extends Error {}

export function readPlan(text: string, given: Given): Read {
  const reading: Reading = { ...given, variables: new Variables(given.values), wanted: new Set() };
  const needed = (): Needed => ({
    variables: [...reading.variables.used].slice(0, MOST_NEEDED),
    files: [...reading.wanted].slice(0, MOST_NEEDED),
  });
  if (text.length > LONGEST) return { error: "The plan is too long: at most 1 MB.", ...needed() };
  try {
    const { body, tasks } = read(text, reading);
    if (reading.variables.missing === undefined) return { body, tasks, ...needed() };
    throw new Wrong("");
  } catch (error) {
    // It may be the cause of other errors.
    const { missing } = reading.variables;
    if (missing !== undefined) return { error: `{{vars.${missing}}} has no value. Write it below the plan.`, ...needed() };
    if (error instanceof Wrong) return { error: error.message, ...needed() };
    return { error: "It cannot be read: it is nested too deep, or refers to itself.", ...needed() };
  }
}

/** A page shows no more fields than that. */
const MOST_NEEDED = 50;
/** The longest prompt that the server takes, in characters. */
const MOST_PROMPT = 65_536;

interface Reading extends Given {
  variables: Variables;
  wanted: Set<string>;
}

function read(text: string, reading: Reading): { body: Planned; tasks: Drawn[] } {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true, merge: true });
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
  const wrong = (what: string): never => {
    throw new Wrong(`The plan: ${what}`);
  };
  const ofPlan = machineOf(plan["machineId"], reading, wrong);
  const tasks = given.map((one, at) =>
    taskOf(
      one,
      at,
      { ...common, ...(ofPlan !== undefined && !("machineId" in common) && { machineId: plan["machineId"] }) },
      reading,
    ),
  );
  const placeOf = inOrder(tasks);
  const idOf = (at: number): string => tasks[at]?.taskKey ?? String(at);
  const title = typeof plan["title"] === "string" ? { title: reading.variables.fill(plan["title"], wrong) } : {};
  const body = {
    ...pick(plan, ["maxConcurrency", "spread"]),
    ...title,
    ...(ofPlan !== undefined && { machineId: ofPlan }),
    tasks,
  } as Planned;
  const drawn = tasks.map(({ taskKey, title: called, prompt, turn, dependsOn }, at) => ({
    id: idOf(at),
    title: called ?? taskKey ?? (turn?.prompt ?? prompt)?.slice(0, 80) ?? `Task ${at + 1}`,
    dependsOn: (dependsOn ?? []).flatMap((name) => placeOf(name) ?? []).map(idOf),
  }));
  return { body, tasks: drawn };
}

function check(members: Members, known: readonly string[], where: string): void {
  for (const [name, value] of Object.entries(members)) {
    if (!known.includes(name))
      throw new Wrong(
        `${where} has no member \`${name}\`. It can have ${known.filter((one) => one !== "$schema").join(", ")}.`,
      );
    const words = WORDS[name];
    if (words && value !== null && !words.includes(String(value)))
      throw new Wrong(`${where}: \`${name}\` is one of ${words.join(", ")}.`);
    const shape = SHAPES[name];
    if (shape && value !== null && !shape[0](value)) throw new Wrong(`${where}: \`${name}\` ${shape[1]}.`);
    const isText = ["title", "model", "workingDirectory", "prompt", "base", "key", "taskKey", "machineId", "timeout"].includes(
      name,
    );
    if (isText && value !== null && typeof value !== "string")
      throw new Wrong(`${where}: \`${name}\` is a text. Put it in quotes.`);
  }
}

function pick(members: Members, names: readonly string[]): Members {
  return Object.fromEntries(
    names.filter((name) => members[name] !== undefined && members[name] !== null).map((name) => [name, members[name]]),
  );
}

/** The id of the machine with this name, else with this id, else with this ref. A server can make up machines with any id, but cannot name
 * one. */
function machineOf(given: unknown, { machines, hidden }: Reading, wrong: (what: string) => never): string | undefined {
  if (given === undefined || given === null) return undefined;
  const named = String(given);
  const isSame = (name: string): boolean => name !== "" && name.toLowerCase() === named.toLowerCase();
  // Before an id: a server that hides a machine could show another one whose id is its name.
  if (hidden.some(isSame)) return wrong(`the server does not show your machine ${named}. Do not trust it if that stays so.`);
  const found =
    machines.find(({ name }) => isSame(name)) ??
    machines.find(({ id }) => id === named) ??
    machines.find(({ ref }) => ref === named);
  if (found) return found.id;
  const all = machines.map(({ name, ref }) => (name === "" ? ref : `${name} (${ref})`)).join(", ");
  return wrong(`there is no machine ${named}. ${all === "" ? "Your account has none." : `Yours are ${all}.`}`);
}

/** The prompt, or that of the file that a person has chosen. */
function promptOf({ prompt, promptFile }: Members, { files, wanted }: Reading, wrong: (what: string) => never): string {
  if (typeof promptFile === "string" && promptFile !== "") {
    if (prompt !== undefined) return wrong("it has both a prompt and a promptFile.");
    wanted.add(promptFile);
    return (
      files[promptFile] ??
      wrong(
        `a page cannot open ${promptFile} by its name. Choose the file below the plan, write its text as \`prompt\`, or use \`ensemble run\`.`,
      )
    );
  }
  if (promptFile !== undefined) return wrong("its promptFile is the name of a file.");
  return typeof prompt === "string" && prompt.trim() !== "" ? prompt : wrong("it has no prompt.");
}

/** What a task with `session: true` cannot have, because it is sealed for its machine. */
function turnOf(
  all: Members,
  prompt: string,
  machineId: string | undefined,
  { machines, hidden }: Given,
  wrong: (what: string) => never,
): Turn {
  const refused = ["allowedTools", "isolation", "base"].find((name) => all[name] !== undefined);
  if (refused) return wrong(`a task with \`session: true\` cannot have ${refused}.`);
  if (outputKeys(prompt).length > 0)
    return wrong("its prompt is sealed because of `session: true`, so the server cannot put outputs of other tasks into it.");
  const only = machines.length === 1 && hidden.length === 0 ? machines[0]?.id : undefined;
  const machine = machineId ?? only ?? wrong("it has `session: true`, so it is sealed for one machine. Name it: `machineId`.");
  const { permission, title } = all as { permission?: Turn["mode"]; title?: string };
  const named = title ?? prompt.trim().split("\n")[0]?.slice(0, 60);
  return {
    ...(pick(all, ["provider", "model", "workingDirectory", "maxCostUsd"]) as Pick<Turn, "provider" | "workingDirectory">),
    machineId: machine,
    prompt: prompt.replaceAll("\\{{", "{{"),
    ...(named !== undefined && { title: named }),
    ...(permission && { mode: permission }),
  };
}

function taskOf(given: unknown, at: number, common: Members, reading: Reading): PlannedTask {
  if (!isObject(given)) throw new Wrong(`Task number ${at + 1} has members, as in {key: look, prompt: "…"}.`);
  const key = given["key"] ?? given["taskKey"];
  const called = typeof key === "string" ? `Task ${key}` : `Task number ${at + 1}`;
  check(given, OF_TASK, called);
  const wrong = (what: string): never => {
    throw new Wrong(`${called}: ${what}`);
  };
  if (key !== undefined && !KEY.test(String(key)))
    wrong("its key begins with a letter, and has letters, digits, - and _ only.");
  const { variables } = reading;
  const all: Members = { ...pick(common, OF_ALL), ...pick(given, OF_TASK) };
  for (const name of ["title", "workingDirectory"])
    if (typeof all[name] === "string") all[name] = variables.fill(all[name], wrong);
  const prompt = variables.fill(promptOf(given, reading, wrong), wrong, true);
  if (prompt.length > MOST_PROMPT) wrong(`its prompt is longer than ${MOST_PROMPT.toLocaleString()} characters.`);
  const machineId = machineOf(all["machineId"], reading, wrong);
  const { provider, workingDirectory, permission } = all as {
    provider?: string;
    workingDirectory?: string;
    permission?: string;
  };
  if (provider === undefined) wrong("it has no provider: claude, codex or gemini. Put it into `defaults` for all tasks.");
  if (workingDirectory === undefined)
    wrong("it has no workingDirectory, as in /home/me/project. Put it into `defaults` for all tasks.");
  if (!workingDirectory?.startsWith("/")) wrong("its workingDirectory begins with /.");
  const timeoutMs =
    given["timeout"] === undefined && given["timeoutMs"] === undefined
      ? milliseconds(common, wrong)
      : milliseconds(given, wrong);
  const isSession = given["session"] === true;
  if (permission === "ask" && !isSession)
    wrong("it cannot be answered with the permission ask. Use plan, edit or bypass, or `session: true`.");
  const ofBoth = {
    ...(key !== undefined && { taskKey: key }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(machineId !== undefined && { machineId }),
    ...pick(all, ["title", "provider", "retry", "failOnDenial", "dependsOn"]),
  };
  if (isSession) return { ...ofBoth, turn: turnOf(all, prompt, machineId, reading, wrong) } as unknown as PlannedTask;
  const names = ["model", "workingDirectory", "permission", "allowedTools", "isolation", "base", "maxCostUsd"];
  return { ...ofBoth, prompt, ...pick(all, names) } as unknown as PlannedTask;
}

const DAY = 86_400_000;

/** A time such as `90s` or `15m`. */
function milliseconds({ timeout, timeoutMs }: Members, wrong: (what: string) => never): number | undefined {
  if (typeof timeout === "string" && typeof timeoutMs === "number") return wrong("it has both a timeout and a timeoutMs.");
  if (typeof timeoutMs === "number") return timeoutMs;
  if (typeof timeout !== "string") return undefined;
  const units: Record<string, number> = { s: 1_000, m: 60_000, h: 3_600_000, d: DAY };
  const [, count, unit] = /^(\d+)([smhd])$/.exec(timeout) ?? [];
  const time = Number(count) * (units[unit ?? ""] ?? NaN);
  return time >= 1_000 && time <= DAY ? time : wrong("its timeout is 1s to 24h, as in 90s, 10m or 2h.");
}

/** A text in braces that is clearly meant as the output of a task, but is written wrongly, and the right form. */
function misspelt(prompt: string, isKey: (key: string) => boolean): [wrong: string, meant: string] | undefined {
  for (const [whole, inside = ""] of prompt.matchAll(/(?<!\\)\{\{([\w .-]{1,160})\}\}/g)) {
    const parts = inside.split(".").map((part) => part.trim());
    const [first = "", second = "", last] = parts;
    const isOfTasks = /^tasks?$/i.test(first);
    const isOutput = (word = ""): boolean => /^outputs?$/i.test(word);
    let key: string | undefined;
    if (isOfTasks && (isKey(second) || (parts.length === 3 && isOutput(last)))) key = second;
    else if (parts.length === 2 && isKey(first) && isOutput(second)) key = first;
    const meant = `{{tasks.${key ?? ""}.output}}`;
    if (key !== undefined && whole !== meant) return [whole, meant];
  }
  return undefined;
}

/** Checks that each dependency is a task of the plan, that prompts take outputs of dependencies only, and that no task waits for itself.
 * Returns a function that finds the position of a task by its name. */
function inOrder(tasks: readonly PlannedTask[]): (name: string) => number | undefined {
  const keys = new Map<string, number>();
  for (const [at, { taskKey }] of tasks.entries()) {
    if (taskKey === undefined || taskKey === null) continue;
    if (keys.has(taskKey)) throw new Wrong(`Two tasks have the key ${taskKey}.`);
    keys.set(taskKey, at);
  }
  const placeOf = (name: string): number | undefined =>
    keys.get(name) ?? (/^(0|[1-9]\d*)$/.test(name) && Number(name) < tasks.length ? Number(name) : undefined);
  const after = tasks.map((): number[] => []);
  const left = tasks.map(({ dependsOn, prompt, taskKey }, at) => {
    const wrong = (what: string): never => {
      throw new Wrong(`Task ${taskKey ?? `number ${at + 1}`}: ${what}`);
    };
    const found = new Set<number>();
    for (const name of dependsOn ?? []) {
      const on = placeOf(name) ?? wrong(`${name} is neither the key nor the position of a task.`);
      if (on === at) wrong("it depends on itself.");
      if (found.has(on)) wrong(`it names ${name} twice in dependsOn.`);
      found.add(on);
      after[on]?.push(at);
    }
    for (const key of outputKeys(prompt ?? "")) {
      const on = keys.get(key);
      if (on === undefined || !found.has(on)) wrong(`its prompt takes the output of ${key}, which is not in its dependsOn.`);
      else if (tasks[on]?.turn) wrong(`its prompt takes the output of ${key}, which is a live session and has none.`);
    }
    const [bad, meant] = misspelt(prompt ?? "", (key) => keys.has(key)) ?? [];
    if (bad !== undefined) wrong(`${bad} is no placeholder. Write ${meant}, or \\{{ for braces that stay as they are.`);
    return found.size;
  });
  const free = [...left.keys()].filter((at) => left[at] === 0);
  let done = 0;
  for (let at = free.pop(); at !== undefined; at = free.pop(), done++)
    for (const next of after[at] ?? []) if (--left[next]! === 0) free.push(next);
  const stuck = left.findIndex((count) => count > 0);
  if (done < tasks.length)
    throw new Wrong(`Task ${tasks[stuck]?.taskKey ?? stuck} waits for itself: its dependencies go round in a circle.`);
  return placeOf;
}
