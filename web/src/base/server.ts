/**
 * Where the server is. A server that serves the page itself is at the page's own origin. `ensemble web` serves the page on this computer
 * for a server elsewhere, and names it in `/server.json`. Nothing else can: no query, no fragment and nothing that is stored.
 */
const OWN_COMPUTER = new Set(["127.0.0.1", "localhost", "[::1]"]);
const WITHIN_MS = 30_000;

let found: string | undefined;

/** The server's base address, as in `https://ensemble.example.com`. It is known once {@link findServer} is done. */
export function server(): string {
  if (found === undefined) throw new Error("The address of the server is not known yet.");
  return found;
}

/** Reads the address once, before anything else starts. Fails where it cannot be read, because keys are kept under it. */
export async function findServer(): Promise<void> {
  found = OWN_COMPUTER.has(location.hostname) ? ((await named()) ?? location.origin) : location.origin;
}

/** What `/server.json` says. Nothing where there is none. */
async function named(): Promise<string | undefined> {
  const answer = await fetch("/server.json", { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(WITHIN_MS) });
  if (answer.status === 404) return undefined;
  if (!answer.ok) throw new Error(`/server.json was answered with status ${answer.status}`);
  const said = ((await answer.json()) as { server?: unknown }).server;
  const url = new URL(typeof said === "string" ? said : "");
  if (!/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) throw new Error("/server.json names no server");
  return url.href.replace(/\/$/, "");
}
