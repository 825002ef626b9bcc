/** Paths as people read them: those below the directory of the session without what all of them begin with. */
import { createContext, useContext } from "react";

/** The directory of the session that is drawn. */
export const Directory = createContext<string | undefined>(undefined);

/** The path below the directory; unchanged when it is not below it, or is ambiguous. */
export function relative(path: string, directory: string | undefined): string {
  const base = directory?.replace(/\/+$/, "");
  if (!base || !path.startsWith(`${base}/`)) return path;
  const rest = path.slice(base.length + 1);
  return rest === "" || rest.split("/").some((part) => part === "" || part === "." || part === "..") ? path : rest;
}

export function useRelative(): (path: string) => string {
  const directory = useContext(Directory);
  return (path) => relative(path, directory);
}

/** A title with these paths in it as people read them. Other text stays as it is: a command must say what it does. */
export function titleWith(title: string, paths: readonly string[], directory: string | undefined): string {
  return paths.reduce((text, path) => text.replace(path, () => relative(path, directory)), title);
}
