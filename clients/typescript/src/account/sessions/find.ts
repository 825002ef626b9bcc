// The sessions of an account, and those that are shared with it.

import type { Context } from "../context.js";
import type { Session } from "./known.js";

/** Which sessions a list holds. */
export interface SessionFilter {
  /** Also those that others share with this account. */
  shared?: boolean;
  /** Only those that want something from their people. */
  attention?: boolean;
}

/** The most sessions that a page may have. */
const LONGEST_PAGE = 500;

/** The sessions, the most recently changed first, to the minute, page by page: sort what you show. Pages after the first are long. */
export async function* sessionPages(context: Context, filter: SessionFilter = {}): AsyncGenerator<Session[], void, undefined> {
  const { client } = context;
  const page = (cursor?: string) => {
    const query = {
      ...(filter.shared && { include: "shared" as const }),
      ...(filter.attention && { attention: "any" as const }),
      ...(cursor !== undefined && { cursor, limit: LONGEST_PAGE }),
    };
    return client.call("GET", "/v1/sessions", { query });
  };
  for await (const { sessions } of client.pages(page)) yield sessions;
}
