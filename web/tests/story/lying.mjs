// A server between the page and the real one. It passes everything on, or answers as a broken one does.
import { createServer, request as ask } from "node:http";
import { once } from "node:events";

const HTML = "<!doctype html><title>Hotel</title><h1>Sign in to the network</h1>";
const FAULT = { type: "about:blank", title: "Internal error", status: 500, code: "INTERNAL", detail: "Something is broken." };

/** The ways to answer wrongly. */
export const LIES = ["500", "fault", "html", "half", "never"];

/** Listens at `port` for the server at `target`. */
export async function lying(target, port) {
  const upstream = new URL(target);
  let lie, change;
  const server = createServer((request, response) => {
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
      // A stream has no half: it ends.
      if (kind === "half" && isStream) return void response.writeHead(200, answer.headers).end(": half");
      if (kind === "half") return whole((bytes) => bytes.subarray(0, Math.floor(bytes.length / 2)));
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
    /** From now on answers at a path are changed by what `find` gives for it. */
    change: (find) => (change = find),
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
