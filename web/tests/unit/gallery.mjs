// The gallery, built and served, and a browser for it.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "vite";
import { launch, person } from "../browser.mjs";
import { serve } from "./files.mjs";

export async function gallery() {
  const folder = await mkdtemp(join(tmpdir(), "ensemble-gallery-"));
  process.env.GALLERY = folder;
  await build({ configFile: join(import.meta.dirname, "../gallery/vite.config.ts"), logLevel: "warn" });
  const [site, browser] = [await serve(folder), await launch()];
  return {
    /** A page that shows these bodies, as a new person. */
    async open(given, options) {
      const one = await person(browser, site.origin, options);
      await one.context.addInitScript((value) => {
        globalThis.gallery = value;
      }, { frames: [], ...given });
      await one.page.goto(site.origin);
      await one.page.getByRole("log").waitFor();
      return one;
    },
    async stop() {
      await browser.close();
      site.stop();
      await rm(folder, { recursive: true });
    },
  };
}
