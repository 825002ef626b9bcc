import { visible } from "../text/visible.ts";

/** What to say about an error: what happened, and what to do. A server may have written it, so nothing in it is hidden. */
export function textOf(error: unknown): string {
  // An answer of another shape than this page knows.
  if (error instanceof TypeError || error instanceof ReferenceError || error instanceof SyntaxError)
    return "The page cannot use the answer that it got. Reload it. If this lasts, the page and the server are different versions.";
  return error instanceof Error && error.message !== "" ? visible(error.message) : "Something went wrong. Try again.";
}
