// What is published: what belongs to it and nothing else, and no more of it than a page needs first.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startServer } from "./server.js";

const root = new URL("../../", import.meta.url);

test("the package holds its code, its types, README and licence", async () => {
  const options = { cwd: fileURLToPath(root) };
  const { stdout } = await promisify(execFile)("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], options);
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  const paths = files.map(({ path }) => path);
  const strange = paths.filter((path) => !/^(dist\/[\w/-]+\.(js|d\.ts)|README\.md|LICENSE|package\.json)$/.test(path));
  assert.deepEqual(strange, []);
  const { exports } = JSON.parse(readFileSync(new URL("package.json", root), "utf8")) as {
    exports: Record<string, Record<string, string>>;
  };
  const named = Object.values(exports).flatMap((entry) => Object.values(entry).map((path) => path.slice(2)));
  assert.deepEqual(
    named.filter((path) => !paths.includes(path)),
    [],
  );
});

test("the words are loaded when they are needed, and only the store for browsers uses IndexedDB", () => {
  const files = readdirSync(new URL("dist", root), { recursive: true, encoding: "utf8" }).filter((path) =>
    path.endsWith(".js"),
  );
  const having = (text: RegExp) => files.filter((path) => text.test(readFileSync(new URL(`dist/${path}`, root), "utf8")));
  assert.deepEqual(having(/from ["']@scure/), []);
  assert.deepEqual(having(/import\(["']@scure/), ["protocol/seal/recovery.js"]);
  assert.deepEqual(having(/\b(indexedDB|navigator|window|document|localStorage)\b\s*\./), ["store/indexeddb.js"]);
});

test("the examples run", async () => {
  const server = await startServer();
  try {
    const example = fileURLToPath(new URL("build/examples/notes.js", root));
    const { stdout } = await promisify(execFile)(process.execPath, [example, server.url], { timeout: 120_000 });
    assert.match(stdout, /#1 Plums are ripe\n#2 Pears as well\n/);
  } finally {
    await server.stop();
  }
});
