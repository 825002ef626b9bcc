// What the tests of one process share, made when the first of them asks for it: a browser, the gallery, and the app's own modules.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { build, createServer } from "vite";
import { launch, person } from "../browser.mjs";
import { serve } from "./files.mjs";

/** What must be ended, the newest first. */
const open = [];
after(async () => {
  for (const end of open.reverse()) await end();
});

const once = (make) => {
  let made;
  return () => (made ??= make());
};

/** A browser. The address http://ensemble.example leads to this machine, and is no secure one. */
export const browser = once(async () => {
  const launched = await launch(["--host-resolver-rules=MAP ensemble.example 127.0.0.1"]);
  open.push(() => launched.close());
  return launched;
});

/** Where the gallery is served. */
const site = once(async () => {
  const folder = await mkdtemp(join(tmpdir(), "ensemble-gallery-"));
  open.push(() => rm(folder, { recursive: true }));
  process.env.GALLERY = folder;
  await build({ configFile: join(import.meta.dirname, "../gallery/vite.config.ts"), logLevel: "warn" });
  const served = await serve(folder);
  open.push(() => served.stop());
  return served;
});

/** A visitor of the gallery with a separate browser. `show` opens it with these bodies, in place of what it showed. */
export async function visitor(options) {
  const { origin } = await site();
  const one = await person(await browser(), origin, options);
  let given;
  return {
    ...one,
    async show(contents, query = "") {
      await given?.dispose();
      given =
        contents &&
        (await one.context.addInitScript(
          (value) => {
            globalThis.gallery = value;
          },
          { frames: [], ...contents },
        ));
      await one.page.goto(`${origin}/${query}`);
      // A request can take all of a small screen.
      await one.page.locator("[role=log], h1").first().waitFor({ state: "attached" });
    },
  };
}

/** The gallery with these bodies, as a new person. */
export async function shown(contents, options) {
  const one = await visitor(options);
  await one.show(contents);
  return one;
}

const modules = once(async () => {
  const root = join(import.meta.dirname, "../..");
  const server = await createServer({
    root,
    configFile: false,
    logLevel: "error",
    appType: "custom",
    server: { middlewareMode: true, hmr: false, ws: false, watch: null },
  });
  open.push(() => server.close());
  return server;
});

/** A module of the app, or of a package, for Node.js. */
export const module = async (name) => (await modules()).ssrLoadModule(name);

/** Taps one element, and another one as soon as it is there. Says whether the other one was guarded. */
export const twice = (page, first, second) =>
  page.evaluate(
    async ([first, second]) => {
      const tap = (selector) => {
        const element = document.querySelector(selector);
        element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, detail: 1 }));
        return element.getAttribute("aria-disabled");
      };
      tap(first);
      for (let left = 10_000; left > 0 && !document.querySelector(second); left--)
        await new Promise((next) => queueMicrotask(next));
      return tap(second);
    },
    [first, second],
  );
