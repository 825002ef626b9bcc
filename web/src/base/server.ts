/**
 * Where the server is. A server that serves the page itself is at the page's own origin. `ensemble web` serves the page on this computer
 * for a server elsewhere, and names it in `/server.json`. Nothing else can: no query and no fragment.
 */
const OWN_COMPUTER = new Set(["127.0.0.1", "localhost", "[::1]"]);
const WITHIN_MS = 5_000;
/** What this origin named last, for when it does not answer. */
const LAST = "server";

interface Texts {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
}

/** A service worker has no storage, and a browser may forbid it. */
function storage(): Texts | undefined {
  try {
    return (globalThis as { localStorage?: Texts }).localStorage;
  } catch {
    return undefined;
  }
}

let found: string | undefined;

/** The server's base address, as in `https://ensemble.example.com`. It is known once {@link findServer} is done. */
export function server(): string {
  if (found === undefined) throw new Error("The address of the server is not known yet.");
  return found;
}

/**
 * Reads the address once, before anything else starts. Without an answer, as without a connection, it is the address that this origin
 * gave last. Fails when the answer is something else, because keys are kept under the address.
 */
export async function findServer(): Promise<void> {
  if (!OWN_COMPUTER.has(location.hostname)) {
    found = location.origin;
    return;
  }
  try {
    found = (await named()) ?? location.origin;
  } catch (error) {
    // No answer came.
    const isAway = error instanceof TypeError || error instanceof DOMException;
    found = isAway ? kept() : undefined;
    if (found === undefined) throw isAway ? new Error("The server does not answer", { cause: error }) : error;
    return;
  }
  try {
    storage()?.setItem(LAST, found);
  } catch {
    // It is full. The address is asked for again each time.
  }
}

/** What this origin named before. Undefined where nothing can be kept. */
function kept(): string | undefined {
  try {
    return storage()?.getItem(LAST) ?? undefined;
  } catch {
    return undefined;
  }
}

const NOT_OURS = "Something other than the server answers, for example the sign-in page of a network";

function addressIn(text: string): string | undefined {
  try {
    const { server } = JSON.parse(text) as { server?: unknown };
    return typeof server === "string" ? server : undefined;
  } catch {
    return undefined;
  }
}

/** What `/server.json` says. Nothing where there is none. */
async function named(): Promise<string | undefined> {
  const answer = await fetch("/server.json", { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(WITHIN_MS) });
  if (answer.status === 404) return undefined;
  if (!answer.ok) throw new Error(`The server answers with an error (status ${answer.status})`);
  const text = await answer.text();
  const said = addressIn(text);
  if (said === undefined || !URL.canParse(said)) throw new Error(NOT_OURS);
  const url = new URL(said);
  if (!/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) throw new Error(NOT_OURS);
  return url.href.replace(/\/$/, "");
}
