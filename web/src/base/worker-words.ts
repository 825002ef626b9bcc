/** What the page and its service worker say to each other. */

/** To the worker. The answer to `digest` comes through the port that is sent with it. */
export type ToWorker = "take over" | "digest";

/** What a notification keeps, for its worker and for pages that close it. */
export interface NoticeData {
  /** Where it leads, as `/sessions/<id>`. */
  path: string;
  sessionId?: string | undefined;
  /** What the session wants: another id for each thing. */
  attention: string;
  /** When it was shown, in milliseconds since 1970 by the clock of this computer. */
  at?: number | undefined;
  /** The request that it shows, for an answer to it. */
  asked?: { requestId: string; digest: string } | undefined;
}
