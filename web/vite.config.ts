// Builds the page into `dist`: hashed names below /assets/, nothing inline, the service worker, and a brotli and a gzip of each file
// that is worth it.
import { createHash } from "node:crypto";
import { cp, readFile, readdir, writeFile } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { build, defineConfig, type Plugin, type Rolldown } from "vite";

/** Files that are smaller fit into one packet as they are. */
const WORTH_IT_BYTES = 1_000;
const DIST = join(import.meta.dirname, "dist");

/** The files of the page, by their path from its root. */
async function files(): Promise<Map<string, Buffer>> {
  const entries = await readdir(DIST, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile() && !/\.(br|gz)$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
  return new Map(
    await Promise.all(paths.map(async (path) => [relative(DIST, path).split(sep).join("/"), await readFile(path)] as const)),
  );
}

/** Bundles the service worker, which knows the hash of each file that it keeps. */
async function serviceWorker(): Promise<void> {
  const kept = [...(await files())].filter(([path]) => path !== "sw.js");
  const hashes = kept.map(([path, bytes]) => [`/${path}`, createHash("sha256").update(bytes).digest("base64")]);
  await build({
    configFile: false,
    root: import.meta.dirname,
    logLevel: "warn",
    publicDir: false,
    // The loader of scripts that are loaded later asks for its own address; a worker has them all.
    define: { FILES: JSON.stringify(hashes), "import.meta.resolve": "undefined", "import.meta.url": "location.href" },
    build: {
      target: "es2022",
      emptyOutDir: false,
      reportCompressedSize: false,
      rolldownOptions: {
        input: "src/worker/worker.ts",
        output: { format: "iife", entryFileNames: "sw.js", codeSplitting: false },
      },
    },
  });
}

/** What the page that shows the interface needs of Swagger UI, which holds much more. */
const SWAGGER_UI = [
  "favicon-16x16.png",
  "favicon-32x32.png",
  "index.css",
  "index.html",
  "swagger-ui-bundle.js",
  "swagger-ui-standalone-preset.js",
  "swagger-ui.css",
];

/** The page that shows the interface. The service worker does not keep it. */
async function documentation(): Promise<void> {
  for (const name of SWAGGER_UI)
    await cp(join(import.meta.dirname, "node_modules/swagger-ui-dist", name), join(DIST, "docs", name));
  await cp(join(import.meta.dirname, "docs"), join(DIST, "docs"), { recursive: true });
}

/** Compresses in advance, because the server then only has to choose. */
async function compress(): Promise<void> {
  for (const [path, bytes] of await files()) {
    if (bytes.length < WORTH_IT_BYTES || /\.(png|woff2)$/.test(path)) continue;
    await writeFile(join(DIST, `${path}.gz`), gzipSync(bytes, { level: 9 }));
    const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
    await writeFile(join(DIST, `${path}.br`), brotliCompressSync(bytes, { params }));
  }
}

const finished: Plugin = {
  name: "ensemble-finished",
  apply: "build",
  async closeBundle() {
    await serviceWorker();
    await documentation();
    await compress();
  },
};

/** Modules that a script imports at once, with itself. */
function importedBy(script: string, context: Rolldown.ChunkingContext): ReadonlySet<string> {
  const found = new Set([join(import.meta.dirname, script)]);
  for (const id of found) for (const imported of context.getModuleInfo(id)?.importedIds ?? []) found.add(imported);
  return found;
}

/** The modules that the app imports at once are one file. There would be many files that several screens share, each compressed alone. */
function oneFile(): (id: string, context: Rolldown.ChunkingContext) => string | null {
  let app: ReadonlySet<string> | undefined;
  let first: ReadonlySet<string> | undefined;
  return (id, context) => {
    first ??= importedBy("src/main.ts", context);
    app ??= importedBy("src/start.tsx", context);
    return app.has(id) && !first.has(id) ? "start" : null;
  };
}

const server = process.env.ENSEMBLE_SERVER ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react(), finished],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        entryFileNames: "assets/[name]-[hash].js",
        // The first script contains all that it needs, so it loads nothing of the app.
        codeSplitting: {
          groups: [
            { name: "index", tags: ["$initial"], priority: 1 },
            { debugName: "app", name: oneFile() },
          ],
        },
      },
    },
  },
  worker: { format: "es" },
  // `npm run dev` alongside `ensemble up`. The security policy is only on the built page.
  server: { proxy: { "/v1": server, "/v2": server, "/v3": server } },
});
