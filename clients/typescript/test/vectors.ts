// The project's test vectors, which the Rust code has made, and helpers to read them.

import { readFileSync } from "node:fs";
import { decode, encode } from "../src/protocol/bytes.js";

const root = new URL("../../../../", import.meta.url);

/** A file of vectors, by its path in the repository. */
export const vectors = (path: string): any => JSON.parse(readFileSync(new URL(path, root), "utf8"));

export function bytes(text: string): Uint8Array<ArrayBuffer> {
  const decoded = decode(text);
  if (!decoded) throw new Error(`${text} is no base64url`);
  return decoded;
}

export { encode };
