// Writes src/openapi.ts, the types of all calls, from docs/openapi.json. Git ignores the file: it is made with each build, so it
// cannot be stale.

import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const document = new URL("../../../docs/openapi.json", import.meta.url);
const output = new URL("../src/openapi.ts", import.meta.url);

const made = `// Made from docs/openapi.json by scripts/types.mjs.\n\n${astToString(await openapiTS(document))}`;
const kept = await readFile(output, "utf8").catch(() => "");
if (kept !== made) await writeFile(output, made);
