// Builds the page into `dist`: hashed names below /assets/, nothing inline, and a brotli and a gzip beside each file that is worth it.
import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** Files that are smaller fit into one packet as they are. */
const WORTH_IT_BYTES = 1_000;

/** Compresses in advance, because the server then only has to choose. */
function compressed(): Plugin {
  return {
    name: "ensemble-compressed",
    apply: "build",
    async closeBundle() {
      const folder = join(import.meta.dirname, "dist");
      for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || /\.(br|gz|png|woff2)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        const bytes = await readFile(path);
        if (bytes.length < WORTH_IT_BYTES) continue;
        await writeFile(`${path}.gz`, gzipSync(bytes, { level: 9 }));
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
        await writeFile(`${path}.br`, brotliCompressSync(bytes, { params }));
      }
    },
  };
}

const server = process.env.ENSEMBLE_SERVER ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react(), compressed()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: { output: { entryFileNames: "assets/[name]-[hash].js" } },
  },
  worker: { format: "es" },
  // `npm run dev` beside `ensemble up`. The security policy is only on the built page.
  server: { proxy: { "/v1": server, "/v2": server, "/v3": server } },
});
