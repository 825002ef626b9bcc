//! Characters that a screen hides or that change what a reader sees.

/// Whether it is a control character other than a line feed or tab, has no width or a space's look, or turns the direction of writing.
pub(crate) fn is_hidden(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        letter if letter.is_control() => true,
        // Soft hyphen, combining grapheme joiner, Arabic letter mark, fillers, vowel separators.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}'
        | '\u{ffa0}' => true,
        '\u{180b}'..='\u{180f}' => true,
        // Zero width, directions; line and paragraph separators; isolates, invisible operators.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        // Blank Braille, variation selectors, byte order mark, annotations, tags.
        '\u{2800}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        // Spaces of other widths look like a space, or like nothing.
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => true,
        _ => false,
    }
}
