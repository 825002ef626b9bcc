// `node node.mjs FILE`: reads vectors from standard input, has the file's `check` open each and make its own for the same account
// and ids, and writes those to standard output. Exits with 1 at the first wrong vector.

import assert from "node:assert/strict";

const { check } = await import(`./${process.argv[2]}`);
let input = "";
for await (const chunk of process.stdin) input += chunk;
process.stdout.write(JSON.stringify(await check(JSON.parse(input), assert)));
