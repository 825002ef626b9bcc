//! Output for people and programs: lines, sentences and JSON. Text from others cannot control the terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use ensemble_screen::{Look, Printed};
pub(crate) use ensemble_types::line::{inline, short};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::styled::{Styled, Tone, is_coloured, screen};

/// Prints one line.
pub(crate) fn line(text: impl AsRef<str>) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", clean(text.as_ref()))?;
    Ok(out.flush()?)
}

/// Prints a note to standard error, apart from the result.
pub(crate) fn note(text: impl AsRef<str>) {
    // A note that cannot be written is not a failure.
    let _unwritable = writeln!(io::stderr(), "{}", clean(text.as_ref()));
}

/// Asks a question on standard error. The answer is typed on the same line.
pub(crate) fn ask(question: impl AsRef<str>) -> Result<()> {
    let mut out = io::stderr();
    write!(out, "{} ", clean(question.as_ref()))?;
    Ok(out.flush()?)
}

/// Prints one JSON document, or one line of a stream of documents.
pub(crate) fn json(value: &impl Serialize, in_stream: bool) -> Result<()> {
    let text = if in_stream { serde_json::to_string(value) } else { serde_json::to_string_pretty(value) };
    let text = text.map_err(|error| Failure::message(format!("The result cannot be written as JSON: {error}.")))?;
    let mut out = io::stdout().lock();
    // JSON can escape control characters, which only occur within strings.
    let text = replaced(&text, |c| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect());
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints bytes unchanged unless the output is a terminal.
pub(crate) fn raw(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        out.write_all(clean(&String::from_utf8_lossy(bytes)).as_bytes())?;
    } else {
        out.write_all(bytes)?;
    }
    Ok(out.flush()?)
}

/// How Markdown is printed on a terminal, except the lines that are plain. `None`: the output is no terminal and has it as it is.
pub(crate) fn printed(is_plain: fn(&str) -> bool) -> Option<Printed> {
    let (columns, _) = screen()?;
    let look = Look::of(|name| std::env::var_os(name)?.into_string().ok());
    Some(Printed::new(look, u16::try_from(columns).unwrap_or(u16::MAX), is_plain))
}

/// Prints Markdown.
pub(crate) fn markdown(text: &str) -> Result<()> {
    let Some(mut printed) = printed(|_| false) else { return line(text) };
    let begun = printed.add(text);
    drawn(&(begun + &printed.finish()))
}

/// Prints what was made fit for the terminal.
pub(crate) fn drawn(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints one line, with its colours if `coloured`.
pub(crate) fn styled(line: &Styled, coloured: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", line.render(None, coloured))?;
    Ok(out.flush()?)
}

/// A line of a record: its name in 11 columns and its value.
pub(crate) fn field(name: &str, tone: Tone, value: &str) -> Result<()> {
    styled(&Styled::new(Tone::Plain, &format!("{name:10} ")).with(tone, value), is_coloured())
}

/// The home directory, or nothing.
pub(crate) fn home() -> String {
    std::env::var_os("HOME").and_then(|home| home.into_string().ok()).unwrap_or_default()
}

/// A path with `~` for the home directory of this computer.
pub(crate) fn below_home(path: &str) -> String {
    ensemble_screen::below(&home(), path)
}

/// Removes control characters other than line feed and tab, and characters that change the direction of a line, so that
/// text from others cannot control the terminal.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    replaced(text, |_| "\u{fffd}".to_owned())
}

fn replaced(text: &str, by: impl Fn(char) -> String) -> Cow<'_, str> {
    // Bidirectional controls: Unicode Standard Annex #9, section 2.
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { clean.push_str(&by(c)) } else { clean.push(c) }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_does_not_steer_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\tc\nd"), "a\u{fffd}[2Jb\tc\nd");
        assert_eq!(clean("naïve 🙂"), "naïve 🙂");
        assert_eq!(clean("a\u{202e}b\u{9b}c"), "a\u{fffd}b\u{fffd}c");
    }
}
