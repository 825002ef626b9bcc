// A real Chromium with a profile that lasts for a test. Its pages load this package as it is published, without a bundler.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const WITHIN = 120_000;
const root = new URL("../../", import.meta.url);

/** Where a browser finds what Node.js finds by names. */
const IMPORTS = {
  "@ensemble/client": "/dist/index.js",
  "@ensemble/client/account": "/dist/account/index.js",
  "@ensemble/client/indexeddb": "/dist/store/indexeddb.js",
  "@ensemble/client/lists": "/dist/protocol/lists/index.js",
  "@ensemble/client/seal": "/dist/protocol/seal/index.js",
  "@hpke/core": "/node_modules/@hpke/core/esm/mod.js",
  "@hpke/common": "/node_modules/@hpke/common/esm/mod.js",
  "@noble/hashes/": "/node_modules/@noble/hashes/",
  "@scure/bip39": "/node_modules/@scure/bip39/index.js",
  "@scure/bip39/": "/node_modules/@scure/bip39/",
  "eventsource-parser": "/node_modules/eventsource-parser/dist/index.js",
};

const page = `<!doctype html><title>test</title><script type="importmap">${JSON.stringify({ imports: IMPORTS })}</script>
<script type="module" src="/build/test/browser-page.js"></script>`;

export interface Browser {
  /** The origin of its pages. */
  origin: string;
  /** Runs a step of the page in a new process of the browser, and gives what it says. */
  run<T>(step: string, given: { base: string; given?: string; onDigits?: (digits: string) => void }): Promise<T>;
  close(): Promise<void>;
}

export async function openChromium(): Promise<Browser> {
  const profile = await mkdtemp(join(tmpdir(), "ensemble-chromium-"));
  let finish: (text: string) => void = () => undefined;
  let digits: (text: string) => void = () => undefined;
  const server = createServer(async (request, response) => {
    if (request.method === "POST") {
      let body = "";
      for await (const chunk of request) body += chunk;
      response.end();
      return request.url === "/result" ? finish(body) : digits(body);
    }
    const path = new URL(request.url ?? "/", "http://x").pathname;
    if (path === "/") return response.setHeader("content-type", "text/html").end(page);
    if (!/^\/(dist|build|node_modules)\/[\w@/.-]+\.m?js$/.test(path) || path.includes(".."))
      return response.writeHead(404).end();
    const file = await readFile(new URL(`.${path}`, root)).catch(() => undefined);
    if (file) response.setHeader("content-type", "text/javascript").end(file);
    else response.writeHead(404).end();
  });
  await new Promise<void>((listens) => server.listen(0, "127.0.0.1", listens));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const run: Browser["run"] = async (step, { base, given = "", onDigits = () => undefined }) => {
    digits = onDigits;
    const flags = ["--headless", "--disable-gpu", "--no-first-run", "--no-proxy-server", `--user-data-dir=${profile}`];
    // Without the pages of the address bar, which take longer to load than a test's.
    flags.push("--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup");
    // Chromium refuses to sandbox itself as root, as in containers.
    if (process.getuid?.() === 0) flags.push("--no-sandbox");
    const url = `${origin}/#${new URLSearchParams({ step, base, given })}`;
    const child = spawn(process.env["CHROMIUM"] ?? "chromium", [...flags, url], { stdio: "ignore" });
    const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    try {
      const body = await new Promise<string>((resolve, reject) => {
        finish = resolve;
        child.once("error", reject);
        setTimeout(() => reject(new Error(`no answer from Chromium: ${step}`)), WITHIN).unref();
      });
      const answer = JSON.parse(body) as { result?: unknown; failed?: string };
      if (answer.failed !== undefined) throw new Error(answer.failed);
      return answer.result as never;
    } finally {
      child.kill("SIGTERM");
      await ended;
    }
  };
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    server.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  };
  return { origin, run, close };
}
