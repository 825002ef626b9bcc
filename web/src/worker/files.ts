/** The files of this version of the page, kept by the browser: a version is there as a whole or not at all, and opens without a server. */
import { isScreen } from "../shell/route.ts";

/** Each file of the page with its SHA-256 in base64. The build writes it. */
declare const FILES: readonly (readonly [path: string, hash: string])[];
const ALL = FILES;

const PREFIX = "ensemble page ";
/** The page of every screen. */
const PAGE = "/index.html";
const NAMES = new Set(ALL.map(([path]) => path));

/** What identifies this version: SHA-256, in hex, of a line `<path> <hash>` for each file. */
export async function digest(): Promise<string> {
  const lines = ALL.map(([path, hash]) => `${path} ${hash}\n`).join("");
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(lines)));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const name = async (): Promise<string> => PREFIX + (await digest());

/** Fetches all files. One that is not what the build made ends it, as while servers of two versions answer. */
export async function install(): Promise<void> {
  const cache = await caches.open(await name());
  await Promise.all(
    ALL.map(async ([path, hash]) => {
      if (await cache.match(path)) return;
      const response = await fetch(path, { cache: "no-cache", credentials: "omit", integrity: `sha256-${hash}` });
      if (!response.ok) throw new Error(`${path}: ${response.status}`);
      await cache.put(path, response);
    }),
  );
}

/** Forgets versions before the last one. That one stays, for tabs that still run it and load what they need later. */
export async function tidy(): Promise<void> {
  const own = await name();
  const others = (await caches.keys()).filter((one) => one.startsWith(PREFIX) && one !== own);
  await Promise.all(others.slice(0, -1).map((one) => caches.delete(one)));
}

/** The answer to a request of a page, where it is for a file of it. Calls of the interface are not touched. */
export function answerTo(request: Request): Promise<Response> | undefined {
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== location.origin) return undefined;
  if (request.mode === "navigate") return isScreen(url.pathname) ? own(PAGE, request) : undefined;
  // A tab of the version before asks for its own files.
  if (url.pathname.startsWith("/assets/")) return kept(caches, url.pathname, request);
  return NAMES.has(url.pathname) ? own(url.pathname, request) : undefined;
}

async function own(path: string, request: Request): Promise<Response> {
  return kept(await caches.open(await name()), path, request);
}

async function kept(cache: Pick<Cache, "match">, path: string, request: Request): Promise<Response> {
  // Each file is kept once, in the form in which it came.
  return (await cache.match(path, { ignoreVary: true })) ?? fetch(request);
}
