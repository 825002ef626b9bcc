// All tests of this folder in one process, so that they share what `shared.mjs` makes.
import { readdir } from "node:fs/promises";

for (const name of (await readdir(import.meta.dirname)).sort()) {
  if (name.endsWith(".test.mjs")) await import(`./${name}`);
}
