// A server that lies. `tests/lies.json` lists what it changes in its answers.

import assert from "node:assert/strict";
import { Account, DeviceKeys, MemoryStore } from "@ensemble/client/account";
import { vectors } from "./vectors.js";

// JSON of any shape.
type Json = any;
/** Changes the answer to a call. */
export type Lie = (answer: Json, url: URL, method: string) => Json;

/** A connection whose answers can be changed. */
export class Liar {
  lie: Lie | undefined;
  /** The status with which a call is refused, without the real server. */
  refuses: ((line: string) => number | undefined) | undefined;
  /** Whether an answer was changed. */
  hasLied = false;
  readonly sent: string[] = [];

  readonly fetch: typeof fetch = async (input, init) => {
    const url = new URL(String(input));
    const method = init?.method ?? "GET";
    this.sent.push(`${method} ${url.pathname}`);
    const refused = this.refuses?.(`${method} ${url.pathname}`);
    if (refused !== undefined) {
      this.hasLied = true;
      const code = refused === 404 ? "NOT_FOUND" : "INTERNAL";
      const problem = { type: "about:blank", title: "No", status: refused, code, detail: "No." };
      return Response.json(problem, { status: refused, headers: { "content-type": "application/problem+json" } });
    }
    const response = await fetch(input, init);
    if (!this.lie || !response.headers.get("content-type")?.startsWith("application/json")) return response;
    const answer = await response.json();
    const lied = this.lie(structuredClone(answer), url, method);
    this.hasLied ||= JSON.stringify(lied) !== JSON.stringify(answer);
    return Response.json(lied, { status: response.status });
  };
}

export interface Row {
  id: string;
  /** The programs that the server lies to. */
  programs: string[];
  /** What a person does. */
  when: string;
  /** What a program must do with the lie. */
  expect: "refused" | "not-written" | "ignored" | "not-shown";
  /** The changes to the answers to these requests. `{name}` stands for a text of the cast, `*` for any part of a path. */
  answers?: Record<string, Change[]>;
  /** The status with which these requests are refused. They do not reach the real server. */
  refuses?: Record<string, number>;
}

/** A change at one place of an answer, or at several: `*` stands for every item, `-1` for the last one. `$name` is a value of the cast. */
interface Change {
  at: string;
  set?: Json;
  add?: Json[];
  remove?: true;
}

/** The values that a scenario has prepared for its lies. */
export type Cast = Record<string, Json>;

/** The rows for this client, by what a person does. */
export function rows(): Map<string, Row[]> {
  const own = (vectors("tests/lies.json") as Row[]).filter(({ programs }) => programs.includes("typescript"));
  const of = new Map(own.map(({ when }) => [when, [] as Row[]]));
  for (const row of own) of.get(row.when)?.push(row);
  return of;
}

/** Tells this lie while `tries` runs. */
export async function tell<T>(row: Row, liar: Liar, cast: Cast, tries: () => Promise<T>): Promise<T> {
  const value = (given: Json): Json => {
    if (typeof given !== "string" || !given.startsWith("$")) return given;
    assert.ok(given.slice(1) in cast, `the cast has no ${given}`);
    return structuredClone(cast[given.slice(1)]);
  };
  const matches = (route: string): ((line: string) => boolean) => {
    const parts = route.split("/").map((part) => (part.startsWith("{") ? cast[part.slice(1, -1)] : part));
    return (line) =>
      line.split("/").length === parts.length && line.split("/").every((part, at) => parts[at] === "*" || part === parts[at]);
  };
  const routes = Object.entries(row.answers ?? {}).map(([route, changes]) => ({ is: matches(route), changes }));
  const refusals = Object.entries(row.refuses ?? {}).map(([route, status]) => ({ is: matches(route), status }));
  liar.hasLied = false;
  liar.sent.length = 0;
  liar.refuses = (line) => refusals.find(({ is }) => is(line))?.status;
  liar.lie = (answer, { pathname }, method) => {
    const whole = { answer };
    for (const { changes } of routes.filter(({ is }) => is(`${method} ${pathname}`)))
      for (const { at, set, add, remove } of changes) {
        const steps = ["answer", ...at.split("/").slice(1)];
        if (remove) change(whole, steps, (one, name) => (Array.isArray(one) ? one.splice(Number(name), 1) : delete one[name]));
        else if (add) change(whole, steps, (one, name) => one[name].push(...add.map(value)));
        else change(whole, steps, (one, name) => (one[name] = value(set)));
      }
    return whole.answer;
  };
  try {
    return await tries();
  } finally {
    liar.lie = liar.refuses = undefined;
    assert.ok(liar.hasLied, `the server did not lie about ${row.id}: ${liar.sent.join(", ")}`);
  }
}

function change(one: Json, [name = "", ...rest]: string[], to: (one: Json, name: string | number) => void): void {
  if (typeof one !== "object" || one === null) return;
  const names = name === "*" ? [...one.keys()] : name === "-1" ? [one.length - 1] : [name];
  for (const each of names) {
    if (rest.length === 0) to(one, each);
    else change(one[each], rest, to);
  }
}

export interface Person {
  account: Account;
  liar: Liar;
  store: MemoryStore;
}

/** A new account at this server. */
export async function person(base: string, name: string): Promise<Person> {
  const [liar, store] = [new Liar(), new MemoryStore()];
  return { account: await Account.create({ base, store, name, fetch: liar.fetch }), liar, store };
}

/** Another device of an account. It is listed without linking, because the server limits links per minute. */
export async function linked(first: Account, base: string): Promise<Person> {
  const [liar, store] = [new Liar(), new MemoryStore()];
  await (await withPhone(first)).keep(store, { base, name: "Phone", userId: first.userId });
  const list = (await first.own()).list.signed;
  await store.update(`list ${first.userId}`, () => list);
  const account = await Account.open({ base, store, fetch: liar.fetch });
  assert.ok(account);
  return { account, liar, store };
}

/** Adds a device to an account. It can be removed again. */
export async function withPhone(account: Account): Promise<DeviceKeys> {
  const phone = await DeviceKeys.generate();
  const { publicKey: key, boxKey, signer } = phone;
  await account.devices.change((devices) => [...devices, { key, boxKey, role: "linked" }], [signer]);
  return phone;
}

export const strike = (account: Account, phone: string) =>
  account.devices.change((devices) => devices.filter(({ key }) => key !== phone));
