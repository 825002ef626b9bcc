// Over plain HTTP at any name but loopback a browser has no cryptography. The page says so, and loads nothing else.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, person, pictures } from "../browser.mjs";
import { serve } from "./files.mjs";
import { browser } from "./shared.mjs";

test("without a secure connection there is one page that says what is missing, and no form", async () => {
  const site = await serve(join(import.meta.dirname, "../../dist"));
  const { port } = new URL(site.origin);
  try {
    const origin = `http://ensemble.example:${port}`;
    const { page, context, faults } = await person(await browser(), origin);
    const loaded = [];
    context.on("request", (request) => loaded.push(new URL(request.url()).pathname));
    await page.goto(origin);
    await page.getByRole("heading", { name: "Ensemble cannot open here" }).waitFor();
    assert.equal(await page.evaluate(() => isSecureContext), false);
    const text = await page.locator("main").innerText();
    for (const said of [
      "a secure connection (https)",
      origin,
      `ssh -L ${port}:127.0.0.1:${port} ensemble.example`,
      `http://localhost:${port}`,
    ]) {
      assert.ok(text.includes(said), `${said}: ${text}`);
    }
    assert.equal(await page.locator("form, input, button").count(), 0);
    assert.deepEqual(
      loaded.filter((path) => path.includes("start-")),
      [],
      "the app is not loaded",
    );
    await accessible(page, "missing");
    await pictures(page, "missing");
    // Chromium says that it ignores what needs a secure context.
    assert.deepEqual(
      faults.filter((fault) => !fault.includes("Cross-Origin-Opener-Policy")),
      [],
    );
    await context.close();
  } finally {
    site.stop();
  }
});
