/** Splits Markdown into blocks, in a time that does not run away: what takes long is shown as it is. */
import { Lexer, type Token } from "marked";

/** Longer texts are shown as they are: splitting them would hold up the page. */
const MOST_CHARACTERS = 100_000;
/** marked looks for the end of each run of these in the rest of its paragraph, again and again: a hundred times as many take ten
 * thousand times as long. */
const RUNS = /[*_~`[\]!<]+/g;
const MOST_RUNS = 8_000;
const MOST_RUNS_OF_PARAGRAPH = 1_000;

export interface Blocks {
  text: string;
  tokens: Token[];
}

/** Undefined: the text is to be shown as it is. */
export function blocksOf(text: string): Blocks | undefined {
  if (text.length > MOST_CHARACTERS || !isQuick(text)) return undefined;
  try {
    return { text, tokens: new Lexer({ gfm: true }).lex(text) };
  } catch {
    // Thousands of nested quotes exhaust the stack.
    return undefined;
  }
}

function isQuick(text: string): boolean {
  let all = 0;
  for (const paragraph of text.split(/\n[ \t\r]*\n/)) {
    const runs = paragraph.match(RUNS)?.length ?? 0;
    all += runs;
    if (runs > MOST_RUNS_OF_PARAGRAPH || all > MOST_RUNS) return false;
  }
  return true;
}

/** The blocks of a text that has grown: only the end of it is split again. What comes later can change what stands before, as an
 * address that a link names; that shows when the text is there as a whole. */
export function more(text: string, before: Blocks | undefined): Blocks | undefined {
  if (!before || !text.startsWith(before.text)) return blocksOf(text);
  const kept = before.tokens.slice(0, -2);
  const end = kept.reduce((sum, { raw }) => sum + raw.length, 0);
  // marked may have replaced line ends.
  const isSame = end === 0 || text.startsWith(kept.at(-1)?.raw ?? "", end - (kept.at(-1)?.raw.length ?? 0));
  if (kept.length === 0 || !isSame || text.length > MOST_CHARACTERS) return blocksOf(text);
  const last = blocksOf(text.slice(end));
  return last && { text, tokens: [...kept, ...last.tokens] };
}
