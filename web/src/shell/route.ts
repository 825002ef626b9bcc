/** The addresses of the page, which can be sent to a colleague. */

export const paths = {
  home: "/",
  session: (id: string) => `/sessions/${id}`,
  talk: (id: string) => `/sessions/${id}/talk`,
  machines: "/machines",
  runs: "/runs",
  run: (id: string) => `/runs/${id}`,
  plan: "/runs/new",
  settings: "/settings",
  start: "/start",
};

/** The first part of each of them, as `crates/web` has them too. */
const FIRST = new Set(["", "link", "machines", "runs", "sessions", "settings", "share", "start"]);

/** Whether the page has a screen at this path. */
export function isScreen(path: string): boolean {
  const parts = path.slice(1).split("/");
  return FIRST.has(parts[0] ?? "") && !(parts.at(-1) ?? "").includes(".");
}
