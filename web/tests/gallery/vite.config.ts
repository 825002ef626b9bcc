import { join } from "node:path";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  root: import.meta.dirname,
  publicDir: join(import.meta.dirname, "../../public"),
  plugins: [react()],
  build: {
    outDir: process.env.GALLERY ?? join(import.meta.dirname, "../../node_modules/.gallery"),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
