// The page as an installed app: it opens without a server, and a new version comes on request, without a broken tab.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { cp, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, person, pictures } from "../browser.mjs";
import { serve } from "./files.mjs";
import { browser } from "./shared.mjs";

const dist = join(import.meta.dirname, "../../dist");
const hashOf = (text) => createHash("sha256").update(text).digest("base64");

/** A second version: the page has another title, and its lazy scripts have other names. */
async function another() {
  const folder = await mkdtemp(join(tmpdir(), "ensemble-version-"));
  await cp(dist, folder, { recursive: true });
  const html = await readFile(join(folder, "index.html"), "utf8");
  const changed = html.replace("<title>Ensemble</title>", '<title>Ensemble</title><meta name="version" content="next">');
  const lazy = (await readdir(join(dist, "assets"))).find((name) => name.startsWith("bip39-") && name.endsWith(".js"));
  const script = await readFile(join(folder, "assets", lazy));
  const other = lazy.replace(/-[\w-]{8}\.js$/, "-00000000.js");
  await rm(join(folder, "assets", lazy));
  await writeFile(join(folder, "assets", other), script);
  await writeFile(join(folder, "index.html"), changed);
  const worker = await readFile(join(folder, "sw.js"), "utf8");
  assert.ok(worker.includes(hashOf(html)), "the worker knows the hash of the page");
  await writeFile(
    join(folder, "sw.js"),
    worker.replace(hashOf(html), hashOf(changed)).replaceAll(`/assets/${lazy}`, `/assets/${other}`),
  );
  return { folder, lazy };
}

const version = (page) => page.evaluate(() => document.querySelector("meta[name=version]")?.content ?? "first");
const ready = (page) =>
  page.evaluate(async () => {
    await navigator.serviceWorker.ready;
    if (!navigator.serviceWorker.controller)
      await new Promise((changed) => navigator.serviceWorker.addEventListener("controllerchange", changed, { once: true }));
  });

test("it is installed, opens without a server, and takes a new version on request", async (test) => {
  const next = await another();
  test.after(() => rm(next.folder, { recursive: true }));
  const site = await serve(dist);
  test.after(() => site.stop());
  const one = await person(await browser(), site.origin);
  const { page, context } = one;
  await page.goto(site.origin);
  await page.getByRole("heading", { name: "Your coding agents, from anywhere" }).waitFor();
  await ready(page);
  const cdp = await context.newCDPSession(page);
  assert.deepEqual(
    (await cdp.send("Page.getInstallabilityErrors")).installabilityErrors.filter(({ errorId }) => errorId !== "in-incognito"),
    [],
  );
  const manifest = await cdp.send("Page.getAppManifest");
  assert.deepEqual(manifest.errors, []);
  assert.equal(JSON.parse(manifest.data).id, "/");

  // Another tab that stays as it is.
  const old = await context.newPage();
  await old.goto(`${site.origin}/settings`);
  await old.getByRole("heading", { name: "Your coding agents, from anywhere" }).waitFor();

  // The server is gone.
  site.leave();
  await page.goto(`${site.origin}/machines`);
  await page.getByRole("heading", { name: "Your coding agents, from anywhere" }).waitFor();
  // The app answers only addresses of its screens.
  const elsewhere = await context.newPage();
  await assert.rejects(elsewhere.goto(`${site.origin}/docs/`));
  await elsewhere.close();

  site.use(next.folder);
  site.comeBack();
  await page.goto(site.origin);
  assert.equal(await version(page), "first");
  await page.evaluate(async () => (await navigator.serviceWorker.getRegistration()).update());
  const said = page.getByText("Update available.");
  await said.waitFor();
  // The other tab hears of what this one has found, once.
  await old.getByText("Update available.").waitFor();
  assert.equal(await old.locator(".update").count(), 1);
  assert.match(await page.locator(".update code").innerText(), /^[\da-f]{4}( [\da-f]{4}){3}$/);
  await accessible(page, "a new version");
  await pictures(page, "new-version");
  await page.reload();
  assert.equal(await version(page), "first", "nothing changes by itself");
  await said.waitFor();
  await Promise.all([page.waitForEvent("load"), page.getByRole("button", { name: "Reload" }).click()]);
  await page.getByRole("heading", { name: "Your coding agents, from anywhere" }).waitFor();
  assert.equal(await version(page), "next");
  assert.equal(await said.count(), 0);

  // The other tab keeps the files of its version, which the server no longer has.
  await old.getByText("Another tab has changed to a new version.").waitFor();
  assert.equal(await version(old), "first");
  const lazy = await old.evaluate(async (name) => (await fetch(`/assets/${name}`)).ok, next.lazy);
  assert.ok(lazy, "a script that it loads later");
  await old.getByRole("button", { name: "Reload" }).click();
  await old.waitForFunction(() => document.querySelector("meta[name=version]") !== null);
  // A failure of the connection is not a fault of the page.
  one.faults.splice(
    0,
    one.faults.length,
    ...one.faults.filter((fault) => !/ERR_(CONNECTION|EMPTY_RESPONSE|SOCKET)/.test(fault) && !fault.includes("/v1/")),
  );
  one.checked();
  await context.close();
});
