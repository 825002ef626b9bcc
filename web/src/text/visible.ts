import { visible as strict } from "@ensemble/client/transcript";

/** For what a person agrees to: whatever a screen hides or shows as another character is written as `\u{…}`, as its host does. */
export { strict };

/**
 * Makes characters visible that change what a reader sees without being seen: those that turn the direction of writing (Unicode
 * Standard Annex 9), and control characters. For what an agent asks permission for there is `strict`; this is for all other
 * text from outside, where joiners and spaces belong to the writing of people.
 */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** The text with each such character written as `\u{…}`. Line feeds and tabs stay, and a carriage return before a line feed goes. */
export function visible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN, (one) => `\\u{${one.charCodeAt(0).toString(16)}}`);
}

/** One line of it, for titles and names: at most `most` characters. */
export function oneLine(text: string, most = 200): string {
  return shortened(visible(text.slice(0, most * 4)), most);
}

/** The same for what a person agrees to. */
export function strictLine(text: string, most = 200): string {
  return shortened(strict(text.slice(0, most * 4)), most);
}

function shortened(text: string, most: number): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}
