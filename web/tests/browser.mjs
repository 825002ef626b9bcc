// Browsers for tests, as Debian packages them. Playwright drives Chromium; `webdriver` drives Firefox and WebKitGTK. A console error, an
// exception, a violation of the security policy or (in Chromium) a request to another origin fails the test.
import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { firefox } from "./webdriver/firefox.mjs";
import { Page } from "./webdriver/page.mjs";
import { webkit } from "./webdriver/webkit.mjs";

const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** How long a test waits, in milliseconds. Agents need seconds to start on a busy machine. */
export const SOON = Number(process.env.SOON || 120_000);

export const PHONE = { width: 390, height: 844 };
export const DESK = { width: 1440, height: 900 };

/** What Chromium does without. Every window would load two pages for its address bar, which take as long as the app does. Only the last
 * list counts, so it has what Playwright 1.65 names (`chromiumSwitches.ts`), too. */
const WITHOUT = [
  "WebUIOmniboxPopup",
  "WebUIOmniboxAimPopup",
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsUpgrades",
  "HttpsFirstBalancedModeAutoEnable",
  "LensOverlay",
  "MediaRouter",
  "PaintHolding",
  "ThirdPartyStoragePartitioning",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "OptimizationHints",
  "NetworkTimeServiceQuerying",
  "AimEnabled",
  "PreconnectToSearch",
];

/** How Chromium is started. It refuses to sandbox itself as root, as in containers. */
export const OPTIONS = {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-proxy-server", `--disable-features=${WITHOUT.join(",")}`, ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])],
};

/** `more` are arguments of Chromium. */
export async function launch(more = []) {
  return chromium.launch({ ...OPTIONS, args: [...OPTIONS.args, ...more] });
}

/** A page of a separate person. `faults` fills with what must not happen; `checked` fails when anything has. `server` is where the page
 * may call, when that is not its own origin. */
export async function person(browser, origin, { server = origin, ...options } = {}) {
  return watch(await browser.newContext({ viewport: DESK, locale: "en-GB", ...options }), origin, server);
}

/** The same in an existing context. */
export async function watch(context, origin, server = origin) {
  context.setDefaultTimeout(SOON);
  const faults = [];
  await context.exposeBinding("__violated", (_source, what) => faults.push(`policy: ${what}`));
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      globalThis.__violated(
        `${event.violatedDirective} ${event.blockedURI} ${event.sample} ${event.sourceFile}:${event.lineNumber}`,
      );
    });
  });
  context.on("console", (message) => {
    // Chromium notes every status of the interface; the app asks for things that may not be there.
    const isStatus =
      message.text().startsWith("Failed to load resource: the server responded") &&
      /^\/(v\d|server\.json$)/.test(new URL(message.location().url).pathname);
    if (message.type() === "error" && !isStatus) faults.push(`console: ${message.text()} ${message.location().url}`);
  });
  context.on("weberror", (error) => faults.push(`exception: ${error.error().stack}`));
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith("http") && url.origin !== origin && url.origin !== server)
      faults.push(`request to ${url.origin}`);
  });
  const page = await context.newPage();
  watched.add(page);
  page.on("close", () => watched.delete(page));
  return { context, page, faults, checked: () => assert.deepEqual(faults, []) };
}

/** The open pages of Chromium. */
const watched = new Set();

/** The beginning of what every open page shows, for the report of a failed step. */
export async function shown() {
  const texts = [...watched].map(async (page) => {
    const text = await page.innerText("body", { timeout: 2_000 }).catch((error) => `not readable: ${error.message}`);
    return `${page.url()} shows:\n${text.replace(/\n+/g, "\n").slice(0, 1_200)}`;
  });
  return (await Promise.all(texts)).join("\n");
}

async function byWebDriver(start) {
  const session = await start(SOON);
  const page = new Page(session, SOON);
  return { page, checked: () => page.checked(), close: session.close };
}

/** Starts each browser that the page is for, with one person in it. */
export const BROWSERS = {
  Chromium: async (origin) => {
    const browser = await launch();
    return { ...(await person(browser, origin)), close: () => browser.close() };
  },
  Firefox: () => byWebDriver(firefox),
  WebKitGTK: () => byWebDriver(webkit),
};

/** Waits for two frames, with everything that changes over a moment at its end. */
const settled = (page) =>
  page.evaluate(
    () =>
      new Promise((drawn) =>
        requestAnimationFrame(() => {
          for (const one of document.getAnimations()) if (one.effect?.getComputedTiming().iterations !== Infinity) one.finish();
          requestAnimationFrame(drawn);
        }),
      ),
  );

/** From a small phone to 4k, a phone on its side included, and a phone and a laptop at 200 % zoom, which leaves half of their pixels. */
const SIZES = [
  [320, 640],
  [360, 800],
  [390, 844],
  [844, 390],
  [3_840, 800],
  [195, 422],
  [720, 450],
];

/** The boxes that can be scrolled to the side and should not be. Code, tables, changes and graphs should. */
const tooWide = (page) =>
  page.evaluate(() => {
    const scrolls = (box) => /auto|scroll/.test(getComputedStyle(box).overflowX) && !box.matches("pre, .graph, .table, .lines");
    const boxes = [document.documentElement, ...[...document.querySelectorAll("body *")].filter(scrolls)];
    // What reaches furthest is named, so that it is found.
    const furthest = (box) =>
      [...box.querySelectorAll("*")]
        .filter((one) => one.getClientRects().length > 0)
        .reduce((found, one) => (one.getBoundingClientRect().right > found.getBoundingClientRect().right ? one : found), box);
    return boxes
      .filter((box) => box.scrollWidth > box.clientWidth)
      .map(
        (box) =>
          `${box.localName}.${box.className}: ${box.scrollWidth} px in ${box.clientWidth}, ${furthest(box).outerHTML.slice(0, 120)}`,
      );
  });

/** What is tapped and has less than 44 CSS pixels on a side. Links in a sentence are as large as their words, and a box to tick is as large
 * as the label around it. */
export const tooSmall = (page) =>
  page.evaluate(() => {
    const all =
      "button, a[href], summary, select, textarea, [role=option], label.check, label.choice, input:not([type=checkbox], [type=radio])";
    const isShown = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.matches(".skip");
    const isWord = (one) => one.localName === "a" && getComputedStyle(one).display === "inline";
    return [...document.querySelectorAll(all)]
      .filter((one) => isShown(one) && !isWord(one))
      .flatMap((one) => {
        const { width, height } = one.getBoundingClientRect();
        return width < 43.5 || height < 43.5
          ? [`${width.toFixed(1)}×${height.toFixed(1)}: ${one.outerHTML.slice(0, 120)}`]
          : [];
      });
  });

/** Nothing is found by axe on the page as it is, light and dark, and nothing in it is wider than its place. */
export async function accessible(page, name) {
  // Chromium draws a tab that is behind another one only every two seconds.
  await page.bringToFront();
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await settled(page);
    const found = await page.evaluate(async () => {
      const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
      return violations.map(
        ({ id, nodes }) =>
          `${id}: ${nodes
            .map((node) => `${node.html} ${node.failureSummary}`)
            .join("; ")
            .slice(0, 900)}`,
      );
    });
    assert.deepEqual(found, [], `axe, ${name}, ${colorScheme}`);
  }
  const before = page.viewportSize();
  for (const [width, height] of SIZES) {
    await page.setViewportSize({ width, height });
    await settled(page);
    assert.deepEqual(await tooWide(page), [], `${name} at ${width}×${height}`);
    if (await page.evaluate(() => matchMedia("(pointer: coarse)").matches)) {
      assert.deepEqual(await tooSmall(page), [], `targets, ${name} at ${width}×${height}`);
    }
  }
  await page.setViewportSize(before);
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
  await tree(page, name);
}

/** Keeps what a screen reader gets, next to the pictures. */
async function tree(page, name) {
  const folder = process.env.ENSEMBLE_PICTURES;
  if (!folder || page instanceof Page) return;
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, `${name.replaceAll(" ", "-")}.txt`), `${await page.locator("body").ariaSnapshot()}\n`);
}

/** Keeps pictures for people, where ENSEMBLE_PICTURES names a folder: a phone and a desk, light and dark. */
export async function pictures(page, name) {
  const folder = process.env.ENSEMBLE_PICTURES;
  if (!folder) return;
  await mkdir(folder, { recursive: true });
  await page.bringToFront();
  const before = page.viewportSize();
  for (const size of [PHONE, DESK]) {
    await page.setViewportSize(size);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await settled(page);
      await page.screenshot({ path: join(folder, `${name}-${size.width}x${size.height}-${colorScheme}.png`) });
    }
  }
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(before);
}
