// A client of one server: typed calls with a token, retries, deadlines and problems as errors. It knows no endpoint.

import { written, type Caller, type Inputs, type Method, type Output, type PathOf, type Written } from "./call.js";
import { BearerCredential, type Credential } from "./credential.js";
import { isNotFound, isProblem, NoAnswer, Problem } from "./errors.js";
import { Quota } from "./quota.js";
import { checkRefs } from "./refs.js";
import { again, isAmbiguous, isRepeatable, pause, sleep } from "./retry.js";

export interface ClientOptions {
  /** The address of the server, as `https://ensemble.example`. A path behind it is kept. */
  base: string | URL;
  /** The caller's credential. A text is a token. Without one, only public calls work. */
  credential?: Credential | string;
  /** How long a call that may be repeated is tried, in milliseconds (default 60,000). */
  retryFor?: number;
  /** How long one attempt may take, in milliseconds (default 10,000). A long-poll adds what it asks the server to wait. */
  answerWithin?: number;
  /** Called when a call begins that the server should answer at once, so that a page can show when it does not. */
  onCall?: () => CallWatch;
  fetch?: typeof fetch;
}

/** Observes a call. */
export interface CallWatch {
  /** An attempt has failed. The call may be repeated. */
  failed(error: unknown): void;
  /** It is over, with or without success. */
  over(isAnswered: boolean): void;
}

/** The largest answer that is read as a whole, in bytes: a run of 10,000 tasks. A limit against other servers. */
const LONGEST = 512 * 1_024 * 1_024;
const NOT_OURS =
  "Something else than this service answered, as the sign-in page of a network does, or only half an answer came. Try again.";

/** These need no token. */
const WITHOUT_TOKEN = /^\/v1\/(auth$|auth\/challenge$|auth\/links\/[^/]+\/request$|public-sessions\/)/;

export class Client implements Caller {
  /** Scheme, host and port. A sign-in is bound to it. */
  readonly origin: string;
  /** The address without a slash at its end. */
  readonly base: string;
  readonly #options: ClientOptions;
  readonly #credential: Credential | undefined;
  readonly #fetch: typeof fetch;
  readonly #quota = new Quota();
  /** The method by which streams come at once. Some proxies hold back the answer to GET until it ends, and some that to POST: then what
   * streams bring is polled. Undefined: not known yet. */
  streamMethod: "GET" | "POST" | "poll" | undefined;

  constructor(options: ClientOptions) {
    const url = new URL(options.base);
    if (!/^https?:$/.test(url.protocol)) throw new TypeError(`${url} is not an http:// or https:// address`);
    this.origin = url.origin;
    this.base = url.origin + url.pathname.replace(/\/+$/, "");
    this.#options = options;
    const { credential } = options;
    this.#credential = typeof credential === "string" ? new BearerCredential(credential) : credential;
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** The same server with another credential. */
  with(credential: Credential | string | undefined): Client {
    const { credential: _before, ...options } = this.#options;
    const other = new Client(credential === undefined ? options : { ...options, credential });
    other.streamMethod = this.streamMethod;
    return other;
  }

  /** Waits until a quarter of the requests that the account may send in a minute is left. Long work calls this between its steps, so that
   * the account's other programs are not refused because of it. */
  async leaveRoom(): Promise<void> {
    const wait = this.#quota.wait();
    if (wait > 0) await sleep(wait);
  }

  /** Makes a call, and gives the body of its answer. Rejects with `Problem` or `NoAnswer`. */
  async call<M extends Method, P extends PathOf<M>>(method: M, path: P, ...[input]: Inputs<M, P>): Promise<Output<M, P>> {
    const answer = await this.#whole(written(method, path, input));
    await checkRefs(answer);
    return answer as Output<M, P>;
  }

  /** Takes all pages of a list, one after the other. */
  async *pages<P extends { nextCursor?: string | null | undefined }>(
    page: (cursor: string | undefined) => Promise<P>,
  ): AsyncGenerator<P, void, undefined> {
    let cursor: string | undefined;
    do {
      const got = await page(cursor);
      yield got;
      const next = got.nextCursor ?? undefined;
      if (next !== undefined && next === cursor) throw new NoAnswer("foreign", "The server repeats a page.", false);
      cursor = next;
    } while (cursor !== undefined);
  }

  /** Opens an answer that is read while it comes, as a stream of events. Only its beginning has a deadline, and it is tried once. */
  async open(
    path: string,
    headers: Record<string, string>,
    signal: AbortSignal,
    { method = "GET", within = this.#options.answerWithin ?? 10_000 }: { method?: "GET" | "POST"; within?: number } = {},
  ): Promise<Response> {
    const request = { method, path, headers: new Headers(headers), signal };
    const token = await this.#bearer(path.replace(/\?.*/, ""));
    try {
      return await this.#once(request, token, within);
    } catch (error) {
      if (token !== undefined && isProblem(error, "UNAUTHENTICATED")) this.forget(token);
      throw error;
    }
  }

  /** Drops the token, so that the next call signs in again. True when there will be another one. */
  forget(token: string): boolean {
    return this.#credential?.forget(token) ?? false;
  }

  /** The token that the next call will have. */
  token(): Promise<string | undefined> {
    return this.#bearer("/");
  }

  async #bearer(path: string): Promise<string | undefined> {
    return WITHOUT_TOKEN.test(path) ? undefined : this.#credential?.bearer(this);
  }

  async #whole(request: Written): Promise<unknown> {
    const held = waitOf(request);
    const watch = held === 0 ? this.#options.onCall?.() : undefined;
    let isAnswered = false;
    try {
      const answer = await this.#repeated(request, held, watch);
      isAnswered = true;
      return answer;
    } finally {
      watch?.over(isAnswered);
    }
  }

  /** A call with its repetitions. */
  async #repeated(request: Written, held: number, watch: CallWatch | undefined): Promise<unknown> {
    const path = request.path.replace(/\?.*/, "");
    const repeatable = isRepeatable(request.method, path, request.headers, request.body);
    const end = performance.now() + (this.#options.retryFor ?? 60_000) + held;
    const within = (this.#options.answerWithin ?? 10_000) + held;
    let [renewed, mayHaveHappened] = [false, false];
    let earlier: unknown;
    for (let failures = 0; ;) {
      const token = await this.#bearer(path);
      const left = Math.max(1, end - performance.now());
      try {
        return await this.#once(request, token, Math.min(within, left), (response) => this.#read(response));
      } catch (error) {
        request.signal?.throwIfAborted();
        if (isProblem(error, "UNAUTHENTICATED") && !renewed && token !== undefined && this.forget(token)) {
          renewed = true;
          continue;
        }
        if (mayHaveHappened && request.method === "DELETE" && isNotFound(error)) {
          return { success: true };
        }
        // An attempt that was cut short says less than the one before it.
        if (earlier && left < within && (error as Partial<NoAnswer>).why === "timeout") throw earlier;
        earlier = repeatable && error;
        watch?.failed(error);
        mayHaveHappened ||= isAmbiguous(error);
        const next = again(error, repeatable);
        if (!next) throw error;
        const wait = pause(++failures, next.wanted);
        if (performance.now() + wait >= end) throw error;
        await sleep(wait, request.signal);
      }
    }
  }

  /** One attempt. What `read` takes of the answer has to come in time as well. */
  async #once<T = Response>(
    { method, path, headers: given, body, signal }: Written,
    token: string | undefined,
    within: number,
    read: (response: Response) => T | Promise<T> = (response) => response as T,
  ): Promise<T> {
    const headers = new Headers(given);
    if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), within);
    const init: RequestInit = {
      method,
      headers,
      cache: "no-store",
      // A redirect must not take the token to another server.
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, deadline.signal]) : deadline.signal,
      ...(body !== undefined && { body }),
    };
    try {
      const response = await this.#fetch(this.base + path, init);
      this.#quota.measure(response.headers);
      if (!response.ok) throw await refusal(response, this.origin);
      return await read(response);
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof Problem || error instanceof NoAnswer) throw error;
      if (deadline.signal.aborted) {
        const text = `There was no answer from ${this.origin} within ${Math.round(within / 1_000)} s.`;
        throw new NoAnswer("timeout", text, true, { cause: error });
      }
      const text = `There is no connection to ${this.origin}, or it broke.`;
      throw new NoAnswer("unreachable", text, !isUnsent(error), { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }

  /** The JSON of an answer. Undefined: it has none. Half an answer is none: that is found here, where the call can be repeated. */
  async #read(response: Response): Promise<unknown> {
    const bytes = await bounded(response, this.origin);
    if (bytes.length === 0) return undefined;
    try {
      return JSON.parse(new TextDecoder().decode(bytes));
    } catch {
      throw new NoAnswer("foreign", NOT_OURS, true);
    }
  }
}

/** Whether it is certain that nothing was sent. Browsers do not say so. */
function isUnsent(error: unknown): boolean {
  const cause = (error as { cause?: { code?: unknown } }).cause;
  return ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"].includes(String(cause?.code));
}

/** How long the server is asked to hold a request, in milliseconds. */
function waitOf({ path, body }: Written): number {
  const asked = /[?&](?:waitMs|timeoutMs)=(\d+)/.exec(path)?.[1] ?? /"timeoutMs":(\d+)/.exec(body ?? "")?.[1];
  if (asked === undefined) return /\/(pend|looks)$/.test(path) ? 30_000 : 0;
  return Math.min(Number(asked), 120_000);
}

async function bounded(response: Response, origin: string): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  const reader = response.body?.getReader();
  for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) {
    length += next.value.length;
    if (length > LONGEST) {
      await reader?.cancel();
      throw new NoAnswer("foreign", `${origin} sends more than any answer of this service.`, true);
    }
    pieces.push(next.value);
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** How a server begins the detail of 404 for a path that it does not have. Its code is that of a thing that was not found. */
const NO_SUCH_PATH = "There is no such path.";

async function refusal(response: Response, origin: string): Promise<Problem | NoAnswer> {
  const { status, headers } = response;
  if (headers.get("content-type")?.startsWith("application/problem+json")) {
    const body: unknown = await response.json().catch(() => undefined);
    const seconds = Number.parseInt(headers.get("retry-after") ?? "", 10);
    if (body !== null && typeof body === "object") {
      const { detail } = body as { detail?: unknown };
      if (status === 404 && typeof detail === "string" && detail.startsWith(NO_SUCH_PATH)) {
        const text = `The server at ${origin} is older than this program and does not know this call. Update the server, or check its address.`;
        return new Problem({ detail: text, code: "OLDER_SERVER" }, status, undefined);
      }
      return new Problem(body as Record<string, unknown>, status, Number.isNaN(seconds) ? undefined : seconds);
    }
  }
  await response.body?.cancel();
  const text = `${origin} answered with status ${status} and is not this service. Check the address.`;
  // A proxy in front of the service answers so while that starts.
  return status >= 500
    ? new NoAnswer("foreign", text, true)
    : new Problem({ detail: text, code: "FOREIGN" }, status, undefined);
}

/** A new key for calls that are repeated (`Idempotency-Key`) and for messages (`localId`). */
export const newId = (): string => crypto.randomUUID();
