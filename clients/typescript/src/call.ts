// Calls of the interface, typed by its document: which paths there are, what each takes, and what it answers with.

import { Refused } from "./errors.js";
import type { paths } from "./openapi.js";

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
/** The paths that know a method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [L in Lowercase<M>]: object } ? P : never;
}[keyof paths];
type Operation<M extends Method, P extends keyof paths> = paths[P][Lowercase<M> & keyof paths[P]];

type Json<T> = T extends { content: { "application/json": infer B } } ? B : never;
type Parameters<O> = O extends { parameters: infer P } ? Pick<P, keyof P & ("path" | "query" | "header")> : never;
type Body<O> = O extends { requestBody: infer B }
  ? { body: Json<B> }
  : O extends { requestBody?: infer B }
    ? [Json<B>] extends [never]
      ? { body?: never }
      : { body?: Json<B> }
    : never;
/** What a call takes: `path`, `query` and `header` parameters and a `body`, as its operation has them. */
export type Input<M extends Method, P extends keyof paths> = Parameters<Operation<M, P>> &
  Body<Operation<M, P>> & {
    /** Headers that are not parameters of the operation. */
    headers?: Record<string, string>;
    signal?: AbortSignal;
  };
/** An input may be left out where nothing in it is needed. */
export type Inputs<M extends Method, P extends keyof paths> =
  object extends Input<M, P> ? [input?: Input<M, P>] : [input: Input<M, P>];

type Answered<O> = O extends { responses: infer R } ? Json<R[keyof R & (200 | 201 | 202)]> : never;
/** The body of the answer. Undefined: it has none. */
export type Output<M extends Method, P extends keyof paths> = [Answered<Operation<M, P>>] extends [never]
  ? undefined
  : Answered<Operation<M, P>>;

/** Makes calls: a client of a server. */
export interface Caller {
  /** Scheme, host and port. */
  readonly origin: string;
  call<M extends Method, P extends PathOf<M>>(method: M, path: P, ...inputs: Inputs<M, P>): Promise<Output<M, P>>;
}

/** A call, written out. */
export interface Written {
  method: string;
  /** With its query. */
  path: string;
  headers: Headers;
  body?: string | undefined;
  signal?: AbortSignal | undefined;
}

interface Parts {
  path?: object | undefined;
  query?: object | undefined;
  header?: object | undefined;
  headers?: object;
  body?: unknown;
  signal?: AbortSignal;
}

/** Writes a call. What is absent in the query is left out, and of a list each member is a parameter of its own. */
export function written(
  method: Method,
  path: string,
  { path: parts = {}, query = {}, header, headers, body, signal }: Parts = {},
): Written {
  const given = new Map<string, unknown>(Object.entries(parts));
  const whole = path.replace(/\{(\w+)\}/g, (_all, name: string) => segment(String(given.get(name))));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null) search.append(name, String(one));
  }
  const all = Object.entries({ ...header, ...headers }).filter(([, value]) => value !== undefined);
  const made = new Headers(all as [string, string][]);
  if (body !== undefined) made.set("content-type", "application/json");
  return {
    method,
    path: search.size > 0 ? `${whole}?${search}` : whole,
    headers: made,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
  };
}

/** A text as one segment of a path. `.` and `..` cannot be one: they would lead to another path. */
export function segment(text: string): string {
  if (text === "." || text === "..") throw new Refused(`“${text}” is no id.`);
  return encodeURIComponent(text);
}
