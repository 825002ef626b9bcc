/** The lines of a unified diff of one file, as git writes it. */
import type { Line } from "../text/changes.tsx";

export interface Patch {
  lines: Line[];
  isNew: boolean;
  /** It is no text, so there are no lines. */
  isBinary: boolean;
}

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const count = (digits: string | undefined): number => Number(digits ?? 1);

export function readPatch(text: string): Patch {
  const lines: Line[] = [];
  let [isNew, isBinary] = [false, false];
  let [before, after] = [0, 0];
  // What is left of the hunk. Outside of one a line that begins with a sign is a part of the head.
  let [old, now] = [0, 0];
  for (const line of text.split("\n")) {
    const sign = line[0];
    const content = line.slice(1);
    if (old > 0 && sign === "-") {
      // The line that is in its place now.
      lines.push({ sign, text: content, before, now: after });
      [old, before] = [old - 1, before + 1];
    } else if (now > 0 && sign === "+") {
      lines.push({ sign, text: content, after, now: after });
      [now, after] = [now - 1, after + 1];
    } else if (old > 0 && now > 0 && sign === " ") {
      lines.push({ sign: " ", text: content, before, after, now: after });
      [old, now, before, after] = [old - 1, now - 1, before + 1, after + 1];
    } else {
      const hunk = HUNK.exec(line);
      isNew ||= line.startsWith("new file mode");
      isBinary ||= line.startsWith("Binary files ") || line === "GIT binary patch";
      if (!hunk) continue;
      if (lines.length > 0 || count(hunk[3]) > 1) lines.push({ sign: "…", text: "" });
      [before, old, after, now] = [count(hunk[1]), count(hunk[2]), count(hunk[3]), count(hunk[4])];
    }
  }
  return { lines, isNew, isBinary };
}
