// Characters that a screen hides or that change what a reader sees (Unicode Technical Standard 55).

/** Control characters, and those that have no width or a space's look, or turn the direction of writing: a class of a regular expression. */
export const HIDDEN =
  "\\p{Cc}\\u{ad}\\u{34f}\\u{61c}\\u{115f}\\u{1160}\\u{17b4}\\u{17b5}\\u{3164}\\u{ffa0}\\u{180b}-\\u{180f}" +
  "\\u{200b}-\\u{200f}\\u{2028}-\\u{202e}\\u{2060}-\\u{206f}\\u{2800}\\u{fe00}-\\u{fe0f}\\u{feff}\\u{fff0}-\\u{fffb}" +
  "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}" +
  "\\u{a0}\\u{1680}\\u{2000}-\\u{200a}\\u{202f}\\u{205f}\\u{3000}";
