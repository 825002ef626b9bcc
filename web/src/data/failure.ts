/** What to say about an error: what happened, and what to do. */
export function textOf(error: unknown): string {
  return error instanceof Error && error.message !== "" ? error.message : "Something went wrong. Try again.";
}
