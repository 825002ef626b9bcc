/** What a machine shows of the directory of a session. Nothing of it is kept in this browser. */
import { sleep } from "@ensemble/client";
import { type GitState, LookRefused, type Looks as Machine, type Names, type Since } from "@ensemble/client/looks";

export type { GitState, Since };
export type ChangedFile = GitState["files"][number];

export interface Commit {
  id: string;
  subject: string;
  author: string;
  at: string;
}

export interface Entry {
  path: string;
  kind: "file" | "directory" | "link" | "other";
  bytes: number | undefined;
  /** git does not have it, so it may hold secrets. */
  isIgnored: boolean;
}

/** A file: its text or its picture, or neither. */
export interface FileShown {
  bytes: number;
  text?: string;
  picture?: Blob;
  isTooLong: boolean;
}

export interface Looks {
  state(since: Since, signal: AbortSignal): Promise<GitState>;
  /** How a file differs, as git writes it, and how many bytes are missing at its end. */
  diff(since: Since, path: string, signal: AbortSignal): Promise<{ text: string; cut: number }>;
  log(signal: AbortSignal): Promise<readonly Commit[]>;
  names(below: string, signal: AbortSignal): Promise<{ entries: readonly Entry[]; more: boolean }>;
  file(path: string, signal: AbortSignal): Promise<FileShown>;
}

/** The pauses before a busy machine is asked again, in milliseconds. */
const BUSY_PAUSES = [1_000, 3_000, 9_000];

/** Looks by a machine. They are made one after the other: it answers few at once. */
export function looksBy(machine: Pick<Machine, "ask" | "diff" | "file">, pauses: readonly number[] = BUSY_PAUSES): Looks {
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(signal: AbortSignal, look: () => Promise<T>): Promise<T> => {
    const next = last.then(async () => {
      for (const pause of pauses) {
        signal.throwIfAborted();
        try {
          return await look();
        } catch (error) {
          if (!(error instanceof LookRefused && error.code === "busy")) throw error;
        }
        await sleep(pause, signal);
      }
      signal.throwIfAborted();
      return look();
    });
    last = next.catch(() => undefined);
    return next;
  };
  return {
    state: (since, signal) => inTurn(signal, () => machine.ask({ look: "git", what: "state", since }, signal)),
    diff: (since, path, signal) => inTurn(signal, () => machine.diff(since, path, signal)),
    log: (signal) =>
      inTurn(signal, async () => (await machine.ask({ look: "git", what: "log", since: "now" }, signal)).commits),
    names: (below, signal) =>
      inTurn(signal, async () =>
        entriesIn(await machine.ask({ look: "names", ...(below !== "" && { below }), depth: 1 }, signal)),
      ),
    file: (path, signal) =>
      inTurn(signal, async () => {
        const { bytes, kind, content } = await machine.file(path, signal);
        return shownAs(path, kind, bytes, content);
      }),
  };
}

const KINDS: readonly Entry["kind"][] = ["file", "directory", "link"];
const RANK: Record<string, number> = { directory: 0 };

/** Directories first, each kind by name. */
function entriesIn({ names, more }: Names): { entries: Entry[]; more: boolean } {
  const entries = names.map(({ path, kind, bytes, ignored }): Entry => {
    return { path, kind: KINDS.find((one) => one === kind) ?? "other", bytes, isIgnored: ignored };
  });
  const rank = ({ kind }: Entry): number => RANK[kind] ?? 1;
  return { entries: entries.sort((one, other) => rank(one) - rank(other) || one.path.localeCompare(other.path)), more };
}

/** The browser finds out by itself which other picture it is. */
const SVG = /\.svg$/i;

/** What of a file can be shown. A picture that is a text, and a text that is not UTF-8, is what the machine calls it. */
export function shownAs(path: string, kind: string, bytes: number, content: Uint8Array<ArrayBuffer> | undefined): FileShown {
  if (!content) return { bytes, isTooLong: true };
  const shown = { bytes, isTooLong: false };
  if (kind === "picture") return { ...shown, picture: new Blob([content], { type: SVG.test(path) ? "image/svg+xml" : "" }) };
  if (kind !== "text") return shown;
  return { ...shown, text: new TextDecoder().decode(content) };
}
