// A server between the page and the real one. It passes everything on, answers as a broken one does, or holds streams back as the tunnel
// of Cloudflare does.
import { createServer, request as ask } from "node:http";
import { once } from "node:events";

const HTML = "<!doctype html><title>Hotel</title><h1>Sign in to the network</h1>";
const FAULT = { type: "about:blank", title: "Internal error", status: 500, code: "INTERNAL", detail: "Something is broken." };

/** What a tunnel takes at once. It answers 429 to more. */
const MOST_AT_ONCE = 200;

/** The ways to answer wrongly. */
export const LIES = ["500", "fault", "html", "half", "never"];

/** Listens at `port` for the server at `target`. */
export async function lying(target, port) {
  const upstream = new URL(target);
  let lie, change;
  let held = [];
  let atOnce = 0;
  let slowest = 0;
  const requests = [];
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url.replace(/\?.*/, "")}`);
    const begun = performance.now();
    const mayWait = /[?&](waitMs|timeoutMs)=|\/pend$/.test(request.url);
    atOnce += 1;
    response.on("close", () => (atOnce -= 1));
    if (held.length > 0 && atOnce > MOST_AT_ONCE)
      return void response.writeHead(429, { "content-type": "text/plain" }).end("no");
    const kind = lie?.(request.url);
    if (kind === "never") return;
    if (kind === "500") return void response.writeHead(500, { "content-type": "text/plain" }).end("oops");
    if (kind === "fault")
      return void response.writeHead(500, { "content-type": "application/problem+json" }).end(JSON.stringify(FAULT));
    if (kind === "html") return void response.writeHead(200, { "content-type": "text/html" }).end(HTML);
    // As it is, and not as it was: what is changed on the way is read.
    const { "accept-encoding": _coding, "if-none-match": _known, ...headers } = request.headers;
    const { hostname, port: behind } = upstream;
    const passed = ask({ hostname, port: behind, method: request.method, path: request.url, headers }, (answer) => {
      const whole = (edit) => {
        const pieces = [];
        answer
          .on("data", (piece) => pieces.push(piece))
          .on("end", () => {
            const bytes = edit(Buffer.concat(pieces));
            response.writeHead(answer.statusCode, { ...answer.headers, "content-length": bytes.length }).end(bytes);
          });
      };
      const isStream = answer.headers["content-type"]?.startsWith("text/event-stream");
      if (!isStream && !mayWait) slowest = Math.max(slowest, performance.now() - begun);
      // A stream has no half: it ends.
      if (kind === "half" && isStream) return void response.writeHead(200, answer.headers).end(": half");
      if (kind === "half") return whole((bytes) => bytes.subarray(0, Math.floor(bytes.length / 2)));
      // It comes whole, once it has ended.
      if (isStream && held.includes(request.method)) return whole((bytes) => bytes);
      const edit = change?.(request.url);
      if (edit) return whole(edit);
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
      return undefined;
    });
    passed.on("error", () => response.destroy());
    response.on("close", () => passed.destroy());
    request.pipe(passed);
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return {
    /** From now on: `kind`, for the paths that it is for. What is open breaks. */
    lie: (kind, isFor = (path) => /^\/v\d\//.test(path)) => {
      lie = (path) => (isFor(path) ? kind : undefined);
      server.closeAllConnections();
    },
    tellTheTruth: () => {
      lie = undefined;
      server.closeAllConnections();
    },
    /** From now on streams by these methods are held back until they end. What is open breaks. */
    hold: (methods) => {
      held = methods;
      requests.length = slowest = 0;
      server.closeAllConnections();
    },
    /** What was asked for since. */
    requests,
    /** How long the server took since for an answer that should come at once, in milliseconds. */
    slowest: () => slowest,
    /** From now on answers at a path are changed by what `find` gives for it. */
    change: (find) => (change = find),
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
