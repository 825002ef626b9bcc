// `node browser.mjs FILE`: the same as node.mjs, in a real Chromium. The page is on loopback, which browsers trust as they trust
// HTTPS, and sends what it made, or why it failed, back to this script.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LONGEST_MS = 60_000;
const file = process.argv[2];
let vectors = "";
for await (const chunk of process.stdin) vectors += chunk;

const page = `<!doctype html><title>vectors</title><script type="module">
const send = (path, body) => fetch(path, { method: "POST", body });
try {
  const { check } = await import("/${file}");
  const assert = await import("/assert.mjs");
  send("/made", JSON.stringify(await check(await (await fetch("/vectors")).json(), assert)));
} catch (error) {
  send("/failed", String(error.stack ?? error));
}
</script>`;

let resolve, reject;
const answer = new Promise((resolves, rejects) => ([resolve, reject] = [resolves, rejects]));

const server = createServer(async (request, response) => {
  if (request.method === "POST") {
    let body = "";
    for await (const chunk of request) body += chunk;
    response.end();
    return request.url === "/made" ? resolve(body) : reject(new Error(body));
  }
  const name = request.url.slice(1);
  if (name === "") return response.setHeader("content-type", "text/html").end(page);
  if (name === "vectors") return response.end(vectors);
  if (!/^[a-z]+\.mjs$/.test(name)) return response.writeHead(404).end();
  response.setHeader("content-type", "text/javascript").end(await readFile(new URL(name, import.meta.url)));
});
await new Promise((listens) => server.listen(0, "127.0.0.1", listens));

const profile = await mkdtemp(join(tmpdir(), "ensemble-chromium-"));
const flags = ["--headless", "--disable-gpu", "--no-first-run", `--user-data-dir=${profile}`];
// Chromium refuses to sandbox itself as root, as in containers.
if (process.getuid?.() === 0) flags.push("--no-sandbox");
const address = `http://127.0.0.1:${server.address().port}/`;
const browser = spawn(process.env.CHROMIUM ?? "chromium", [...flags, address], { stdio: "ignore" });
browser.on("error", reject);
browser.on("exit", (code) => reject(new Error(`Chromium has ended: ${code}`)));
const timer = setTimeout(() => reject(new Error("no answer from Chromium")), LONGEST_MS);
try {
  process.stdout.write(await answer);
} finally {
  clearTimeout(timer);
  browser.kill("SIGKILL");
  server.close();
  server.closeAllConnections();
  await rm(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
}
