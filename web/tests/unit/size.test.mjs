// What a browser loads before the first screen, and what the page must not have in it.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";

const dist = join(import.meta.dirname, "../../dist");
const MOST_BYTES = 200_000;

/** The scripts that a page loads by itself, and those that they import without being asked. */
async function first() {
  const html = await readFile(join(dist, "index.html"), "utf8");
  const found = new Set();
  const open = [...html.matchAll(/<script[^>]+src="\/(assets\/[^"]+)"/g)].map(([, path]) => path);
  // The first script imports the app at once.
  const entry = await readFile(join(dist, open[0]), "utf8");
  for (const [, name] of entry.matchAll(/["'`](?:\.\/|\/?assets\/)?(start-[\w-]+\.js)["'`]/g)) open.push(`assets/${name}`);
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (found.has(path)) continue;
    found.add(path);
    const text = await readFile(join(dist, path), "utf8");
    for (const [, name] of text.matchAll(/(?:from|import)\s*["']\.\/([\w.-]+\.js)["']/g)) open.push(`assets/${name}`);
  }
  return [...found];
}

test("the first screen needs at most 200 kB of compressed scripts", async () => {
  const paths = await first();
  assert.ok(
    paths.some((path) => path.includes("start-")),
    paths.join(", "),
  );
  for (const ending of ["br", "gz"]) {
    let sum = 0;
    for (const path of paths) {
      const packed = await readFile(join(dist, `${path}.${ending}`)).catch(() => readFile(join(dist, path)));
      sum += packed.length;
    }
    console.log(`${ending}: ${sum} bytes in ${paths.length} scripts`);
    assert.ok(sum <= MOST_BYTES, `${sum} bytes in ${ending}`);
  }
});

test("nothing is inline, nothing comes from elsewhere, and every name but the page's has a hash", async () => {
  const html = await readFile(join(dist, "index.html"), "utf8");
  assert.doesNotMatch(html, /<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|https?:\/\//);
  for (const name of await readdir(join(dist, "assets"))) assert.match(name, /-[\w-]{8}\.(js|css|svg|png|woff2)(\.br|\.gz)?$/);
});
