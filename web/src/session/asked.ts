/** What an agent sent, apart from its changes. */
import type { Diff } from "../text/changes.tsx";

/** The lines of a request that its changes do not say: everything but the name of the tool, names of members, the path, and lines of
 * the texts before and after. A person who agrees has read both. */
export function restOf(title: string, detail: string, diffs: readonly Diff[]): string {
  const said = new Set([title, "replace_all: false"]);
  for (const { path, oldText, newText } of diffs) {
    said.add(path);
    for (const line of `${oldText ?? ""}\n${newText}`.split("\n")) said.add(line);
  }
  const isSaid = (line: string, at: number): boolean => {
    const value = line.replace(/^[a-z_]+: ?/i, "");
    const isTool = at === 0 && /^[A-Za-z]+$/.test(line);
    return isTool || value === "" || said.has(line) || said.has(value) || said.has(line.replace(/^[-+]/, ""));
  };
  return detail
    .split("\n")
    .filter((line, at) => !isSaid(line, at))
    .join("\n");
}
