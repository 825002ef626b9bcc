// A run that is over, read by `eventsource` as the HTML standard has it: what is over is read once, and not again. Usage: story SERVER
import assert from "node:assert/strict";
import { EventSource } from "eventsource";

import { signer } from "./sign";

const server = process.argv[2] ?? "";
const { publicKey, signed } = signer(server);
let token = "";

async function call(path: string, body?: unknown): Promise<{ id: string; challenge: string; token: string }> {
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(body) });
  assert(answer.ok, await answer.clone().text());
  return (await answer.json()) as { id: string; challenge: string; token: string };
}

const { challenge } = await call("/v1/auth/challenge");
({ token } = await call("/v1/auth", { publicKey, challenge, signature: signed(challenge), origin: server }));
const run = await call("/v1/orchestrator/runs", { tasks: [{ provider: "claude", prompt: "x" }] });
await call(`/v1/orchestrator/runs/${run.id}/cancel`);

const statuses: number[] = [];
const reader = new EventSource(`${server}/v1/orchestrator/runs/${run.id}/events`, {
  fetch: async (url, init) => {
    const answer = await fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${token}` } });
    statuses.push(answer.status);
    return answer;
  },
});
const reasons: string[] = [];
reader.addEventListener("end", (event) => reasons.push(JSON.parse(event.data).reason));
await new Promise<void>((done, failed) => {
  setTimeout(() => failed(new Error(`it has not given up in a minute: ${statuses}`)), 60_000);
  reader.addEventListener("error", () => reader.readyState === reader.CLOSED && done());
});
assert.deepEqual([statuses, reasons], [[200, 204], ["terminal"]]);
process.exit(0);
