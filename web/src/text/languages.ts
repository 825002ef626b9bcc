/** The languages whose code is coloured. They are loaded when code is first shown. */
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";

const lowlight = createLowlight({
  bash,
  c,
  cpp,
  css,
  diff,
  go,
  java,
  javascript,
  json,
  python,
  rust,
  sql,
  typescript,
  xml,
  yaml,
});

export interface Piece {
  text: string;
  /** As `hljs-keyword`. */
  className: string;
}

interface Node {
  type: string;
  value?: string;
  properties?: { className?: unknown };
  children?: Node[];
}

/** The pieces of a text in a language, one after the other. Undefined: the language is not known. It is never guessed: that takes long. */
export function piecesOf(text: string, language: string): Piece[] | undefined {
  if (!lowlight.registered(language)) return undefined;
  const pieces: Piece[] = [];
  const walk = (node: Node, className: string): void => {
    if (node.type === "text") pieces.push({ text: node.value ?? "", className });
    const own = node.properties?.className;
    const inner = Array.isArray(own) ? own.join(" ") : className;
    for (const child of node.children ?? []) walk(child, inner);
  };
  walk(lowlight.highlight(language, text) as Node, "");
  return pieces;
}
