// Serves a folder as the edge serves the app: under its security policy.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
export const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; "
  + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ensemble";

/** Its origin, and how to end it. */
export async function serve(folder) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    const path = normalize(pathname === "/" ? "/index.html" : pathname);
    if (path === "/favicon.ico") return response.writeHead(204).end();
    const bytes = await readFile(join(folder, path)).catch(() => undefined);
    if (!bytes) return response.writeHead(404).end();
    response.setHeader("content-type", `${TYPES[extname(path)] ?? "application/octet-stream"}; charset=utf-8`);
    return response.setHeader("content-security-policy", POLICY).end(bytes);
  });
  await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
