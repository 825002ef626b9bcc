// Makes characters visible that a screen hides or that change what a reader sees.

import { HIDDEN } from "../hidden.js";

const EACH = new RegExp(`[${HIDDEN}]`, "gu");

/** The text with each such character written as `\u{…}`. Line feeds and tabs stay. */
export const visible = (text: string): string =>
  text.replace(EACH, (letter) =>
    letter === "\n" || letter === "\t" ? letter : `\\u{${(letter.codePointAt(0) ?? 0).toString(16)}}`,
  );
