//! Output for people and programs: lines, sentences and JSON. Text from others cannot control the terminal.

use std::io::{self, IsTerminal, Write};

use ensemble_screen::lines::{AgentOutput, Styled, Table, Tone, is_of_tool};
use ensemble_screen::{Look, Printed};
use ensemble_types::line::clean_with;
pub(crate) use ensemble_types::line::{clean, inline, short};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::foot;

/// Prints one line.
pub(crate) fn line(text: impl AsRef<str>) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", clean(text.as_ref()))?;
    Ok(out.flush()?)
}

/// Prints these lines.
pub(crate) fn lines(texts: impl IntoIterator<Item = String>) -> Result<()> {
    texts.into_iter().try_for_each(line)
}

/// Prints a note to standard error, apart from the result.
pub(crate) fn note(text: impl AsRef<str>) {
    foot::print(format!("{}\n", clean(text.as_ref())).as_bytes());
}

/// Prints a note when the person does not read something else, as the log does.
#[cfg(feature = "up")]
pub(crate) fn later(text: impl AsRef<str>) {
    // A note that cannot be written is not a failure.
    let _unwritable = foot::Log.write_all(format!("{}\n", clean(text.as_ref())).as_bytes());
}

/// Writes to standard error what was made fit for a terminal.
pub(crate) fn error(text: &[u8]) {
    // What cannot be written is not a failure.
    let _unwritable = io::stderr().write_all(text);
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
    let text = clean_with(&text, |c| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect());
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// How Markdown is printed on a terminal, except the lines that are plain. `None`: the output is no terminal and has it as it is.
fn printed(is_plain: fn(&str) -> bool) -> Option<Printed> {
    let (columns, _) = screen()?;
    let look = Look::of(|name| std::env::var_os(name)?.into_string().ok());
    Some(Printed::new(look, u16::try_from(columns).unwrap_or(u16::MAX), is_plain))
}

/// The output of an agent, to be printed as it comes.
pub(crate) fn agent_output(is_folded: bool) -> AgentOutput {
    AgentOutput::new(printed(is_of_tool), is_folded)
}

/// Prints Markdown.
pub(crate) fn markdown(text: &str) -> Result<()> {
    let Some(mut printed) = printed(|_| false) else { return line(text) };
    let begun = printed.add(text);
    drawn(begun + &printed.finish())
}

/// Prints what was made fit for the terminal, or is not for one.
pub(crate) fn drawn(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    Ok(out.flush()?)
}

/// Prints one line.
pub(crate) fn styled(line: &Styled) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", line.render(None, is_coloured()))?;
    Ok(out.flush()?)
}

/// A line of a record: its name in 11 columns and its value.
pub(crate) fn field(name: &str, tone: Tone, value: &str) -> Result<()> {
    styled(&Styled::new(Tone::Plain, &format!("{name:10} ")).with(tone, value))
}

/// Prints a table with its head.
pub(crate) fn table(table: &Table) -> Result<()> {
    table.lines(screen().map(|(columns, _)| columns), true).iter().try_for_each(styled)
}

/// Whether output to the terminal has colours: <https://no-color.org>.
pub(crate) fn is_coloured() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The columns and rows of the terminal. `None` when the output is not a terminal.
pub(crate) fn screen() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Some((size.ws_col.into(), size.ws_row.into())),
        _ => Some((80, 24)),
    }
}

/// The home directory, or nothing.
pub(crate) fn home() -> String {
    std::env::var_os("HOME").and_then(|home| home.into_string().ok()).unwrap_or_default()
}

/// A path with `~` for the home directory of this computer.
pub(crate) fn below_home(path: &str) -> String {
    ensemble_screen::below(&home(), path)
}
