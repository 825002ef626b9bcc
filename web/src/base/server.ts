/**
 * Where the server is. A server that serves the page itself is at the page's own origin. `ensemble web` serves the page on this computer
 * for a server elsewhere, and names it in `/server.json`. Nothing else can: no query and no fragment.
 */
const OWN_COMPUTER = new Set(["127.0.0.1", "localhost", "[::1]"]);
const WITHIN_MS = 30_000;
/** What this origin named the last time, for when it does not answer. */
const LAST = "server";

/** A service worker has none, and without a connection nothing to ask the server for. */
const { localStorage: storage } = globalThis as { localStorage?: { getItem(name: string): string | null; setItem(name: string, value: string): void } };

let found: string | undefined;

/** The server's base address, as in `https://ensemble.example.com`. It is known once {@link findServer} is done. */
export function server(): string {
  if (found === undefined) throw new Error("The address of the server is not known yet.");
  return found;
}

/**
 * Reads the address once, before anything else starts. Where nobody answers, as without a connection, it is what this origin said the
 * last time. Fails when something else is answered, because keys are kept under the address.
 */
export async function findServer(): Promise<void> {
  if (!OWN_COMPUTER.has(location.hostname)) {
    found = location.origin;
    return;
  }
  try {
    found = (await named()) ?? location.origin;
    storage?.setItem(LAST, found);
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof DOMException)) throw error;
    if (!storage) throw error;
    found = storage.getItem(LAST) ?? location.origin;
  }
}

/** What `/server.json` says. Nothing where there is none. */
async function named(): Promise<string | undefined> {
  const answer = await fetch("/server.json", { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(WITHIN_MS) });
  if (answer.status === 404) return undefined;
  if (!answer.ok) throw new Error(`/server.json was answered with status ${answer.status}`);
  const said = ((await answer.json()) as { server?: unknown }).server;
  if (typeof said !== "string" || !URL.canParse(said)) throw new Error("/server.json names no server");
  const url = new URL(said);
  if (!/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) throw new Error("/server.json names no server");
  return url.href.replace(/\/$/, "");
}
