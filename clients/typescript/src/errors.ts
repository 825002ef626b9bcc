// What can go wrong, by what the caller can do about it.

import type { components } from "./openapi.js";

/** A stable code. Match on these. */
export type Code = components["schemas"]["Code"];
/** A field that the server has rejected. */
export type FieldError = components["schemas"]["FieldError"];

/** The server answered with a problem (RFC 9457). `message` says what happened and what to do. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly code: Code | (string & {});
  readonly status: number;
  /** The same for every problem with this code. */
  readonly title: string;
  readonly fields: readonly FieldError[];
  /** For support. */
  readonly requestId: string | undefined;
  /** Seconds to wait before the next attempt. */
  readonly retryAfter: number | undefined;
  /** Members that belong to this code only, such as `current`. */
  readonly extra: Readonly<Record<string, unknown>>;

  constructor(body: Record<string, unknown>, status: number, retryAfter: number | undefined) {
    const { type: _type, title, status: _status, detail, code, requestId, errors, ...extra } = body;
    const called = typeof title === "string" ? title : `The server answered with status ${status}.`;
    super(typeof detail === "string" && detail !== "" ? detail : called);
    this.code = typeof code === "string" ? code : "INTERNAL";
    this.status = status;
    this.title = called;
    this.fields = Array.isArray(errors) ? (errors as FieldError[]) : [];
    this.requestId = typeof requestId === "string" ? requestId : undefined;
    this.retryAfter = retryAfter;
    this.extra = extra;
  }
}

/** There was no answer of the server. `mayHaveHappened` says whether the call may have had its effect. */
export class NoAnswer extends Error {
  override readonly name = "NoAnswer";
  constructor(
    /** `unreachable`: no connection, or it broke; `timeout`; `foreign`: something other than this service answered. */
    readonly why: "unreachable" | "timeout" | "foreign",
    message: string,
    readonly mayHaveHappened: boolean,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The server has shown something that it must not: an old list, another account, a key by a stranger. Nothing was done. */
export class Distrust extends Error {
  override readonly name = "Distrust";
}

/** Something could not be sealed or opened. */
export class SealError extends Error {
  override readonly name = "SealError";
  constructor(
    /** `format`: a newer or broken form; `refused`: another key, or changed; `epoch`: a key that this device does not have;
     * `signature`: not signed by who made it; `bound`: too long, or too many. */
    readonly kind: "format" | "refused" | "epoch" | "signature" | "bound",
    message: string,
  ) {
    super(message);
  }
}

/** It cannot be done now, or not by this device. `message` says what to do. */
export class Refused extends Error {
  override readonly name = "Refused";
}

/** A link that can no longer be used. */
export class LinkOver extends Refused {}

/** A store has no room left for what is written. */
export class NoRoom extends Refused {}

export const isProblem = (error: unknown, ...codes: Code[]): error is Problem =>
  error instanceof Problem && (codes.length === 0 || (codes as string[]).includes(error.code));

/** Whether the server says that there is no such thing, or none that this account may know. Not every 404 does: an older server has one
 * for calls that it does not know, and a proxy for what it cannot forward. */
export const isNotFound = (error: unknown): boolean =>
  isProblem(error, "NOT_FOUND", "LINK_NOT_FOUND", "MACHINE_NOT_FOUND", "USER_NOT_FOUND");

/** Whether the same call may succeed later: no connection, or the service is busy or starts. */
export function mayPass(error: unknown): boolean {
  if (error instanceof NoAnswer) return true;
  return error instanceof Problem && [408, 429, 502, 503, 504].includes(error.status);
}
