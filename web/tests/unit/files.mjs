// Serves a folder as the edge serves the app: under its security policy.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
};
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; " +
  "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ensemble";

/** Its origin, how to end it, and how to serve another folder at the same address, or nothing for a while. */
export async function serve(first) {
  let [folder, isGone] = [first, false];
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    const isPage = /^(\/|\/(machines|runs|sessions|settings|start)(\/[^.]*)?)$/.test(pathname);
    const path = normalize(isPage ? "/index.html" : pathname);
    if (path === "/favicon.ico") return response.writeHead(204).end();
    const bytes = await readFile(join(folder, path)).catch(() => undefined);
    if (!bytes) return response.writeHead(404).end();
    response.setHeader("content-type", `${TYPES[extname(path)] ?? "application/octet-stream"}; charset=utf-8`);
    // As the edge: names with a hash for ever, all else is asked for again.
    response.setHeader("cache-control", path.startsWith("/assets/") ? "public, max-age=31536000, immutable" : "no-cache");
    return response.setHeader("content-security-policy", POLICY).end(bytes);
  });
  // The port stays taken: another program could get it.
  server.on("connection", (socket) => isGone && socket.destroy());
  await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
  const { port } = server.address();
  return {
    origin: `http://127.0.0.1:${port}`,
    use: (other) => (folder = other),
    leave: () => {
      isGone = true;
      server.closeAllConnections();
    },
    comeBack: () => (isGone = false),
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
