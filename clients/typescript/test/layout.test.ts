// Which file imports which: no circles, formats that know nothing of accounts and servers, and parts that do not know the whole.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import test from "node:test";

const source = new URL("../../src/", import.meta.url);
const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".ts"));
const imports = new Map(files.map((file) => [file, importsOf(file)]));

/** The files of this package that a file names, types among them. */
function importsOf(file: string): string[] {
  const text = readFileSync(new URL(file, source), "utf8");
  const named = text.matchAll(/\b(?:from|import)\s*\(?\s*"(\.[^"]+)\.js"/g);
  return [...named].map(([, path]) => `${posix.join(posix.dirname(file), path ?? "")}.ts`);
}

/** The arrows between files. One from a file to the index of its own folder does not count. */
const arrows = (file: string): string[] =>
  (imports.get(file) ?? []).filter((other) => other !== posix.join(posix.dirname(file), "index.ts"));

/** The way from a file back to itself, if there is one. */
function circle(file: string): string[] | undefined {
  const ways = [[file]];
  const seen = new Set<string>();
  for (let way = ways.shift(); way; way = ways.shift()) {
    for (const next of arrows(way.at(-1) ?? "")) {
      if (next === file) return [...way, next];
      if (!seen.has(next)) ways.push([...way, next]);
      seen.add(next);
    }
  }
  return undefined;
}

test("files import each other in no circle", () => {
  assert.ok(files.length > 50, `only ${files.length} files: the rule checks nothing`);
  const known = new Set(files);
  const strange = [...imports].flatMap(([file, others]) =>
    others.filter((other) => !known.has(other)).map((other) => `${file} → ${other}`),
  );
  assert.deepEqual(strange, []);
  const circles = files.flatMap((file) => circle(file)?.join(" → ") ?? []);
  assert.deepEqual(circles, []);
});

test("the formats know no account, no store and no calls", () => {
  const outside = /^(account|store)\/|^(call|client|credential|refs|retry|streams)\.ts$/;
  const formats = files.filter((file) => file.startsWith("protocol/"));
  assert.ok(formats.length > 20, `only ${formats.length} files`);
  assert.deepEqual(
    formats.flatMap((file) => imports.get(file)?.filter((other) => outside.test(other)) ?? []),
    [],
  );
});

test("lists know no seals and no transcript, and neither of those knows the other", () => {
  const between = (from: string, to: string): string[] =>
    files
      .filter((file) => file.startsWith(`protocol/${from}/`))
      .filter((file) => imports.get(file)?.some((other) => other.startsWith(`protocol/${to}/`)));
  for (const [from, to] of [
    ["lists", "seal"],
    ["lists", "transcript"],
    ["transcript", "seal"],
    ["seal", "transcript"],
  ] as const) {
    assert.deepEqual(between(from, to), [], `${from} → ${to}`);
  }
});

test("the parts of an account do not know the account", () => {
  const who = files.filter((file) => imports.get(file)?.includes("account/account.ts"));
  assert.deepEqual(who, ["account/index.ts"]);
});
