// Stands in for `cloudflared`, `tailscale` and `ssh` with Caddy on HOST, as their vendors document them. A tunnel of it leads an https
// address of this computer to the server. It takes its name, a certificate, its key, a port (0: another one each time) and a folder, and
// then what the real program takes. The folder gets what it was started with; `serve.json` there is what `tailscale serve status` shows.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { join } from "node:path";

const [name, certificate, key, port, folder, ...args] = process.argv.slice(2);
const after = (word) => (args.includes(word) ? args[args.indexOf(word) + 1] : undefined);
const print = (value) => console.log(JSON.stringify(value));

if (name === "tailscale" && args.includes("status")) {
  const path = join(folder, "serve.json");
  if (args[0] === "serve") print(existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {});
  else print({ BackendState: "Running", Self: { DNSName: `localhost:${port}.` } });
} else {
  const variables = Object.keys(process.env).sort();
  appendFileSync(join(folder, "started"), `${JSON.stringify({ pid: process.pid, args, variables })}\n`);
  const target = new URL(
    name === "ssh" ? `http://127.0.0.1:${after("-R").split(":").at(-1)}` : (after("--url") ?? args.at(-1)),
  );
  const carry = (request, response) => {
    const headers = { ...request.headers, "x-forwarded-for": "203.0.113.7" };
    const { method, url: path } = request;
    const onward = http.request({ host: target.hostname, port: target.port, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.writeHead(502).end());
    request.pipe(onward);
  };
  const tls = { cert: readFileSync(certificate), key: readFileSync(key) };
  const edge = https.createServer(tls, carry).listen(Number(port), "127.0.0.1", () => {
    if (name !== "cloudflared") return;
    const [, metrics] = after("--metrics").split(":");
    const hostname = `localhost:${edge.address().port}`;
    http.createServer((_, response) => response.end(JSON.stringify({ hostname }))).listen(Number(metrics), "127.0.0.1");
  });
}
