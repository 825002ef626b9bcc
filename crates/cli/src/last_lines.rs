//! The last lines of the outputs of tasks that run.

use std::collections::HashSet;

use ensemble_account::Account;
use ensemble_client::OutputOf;
use ensemble_screen::lines::progress::Progress;
use ensemble_types::ids::{RunId, TaskId};
use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{Stream, StreamExt};

use crate::machines::Machines;
use crate::print;

/// How many tasks' outputs are followed, and how much of a line is kept.
const LAST_LINES: usize = 4;
const LONGEST_LINE: usize = 4 << 10;

/// The streams of lines, with their tasks.
#[derive(Default)]
pub(crate) struct LastLines {
    known: HashSet<(TaskId, u32)>,
    pub(crate) lines: SelectAll<BoxStream<'static, (TaskId, String)>>,
}

impl LastLines {
    /// Follows the outputs of attempts that are not followed yet. An output ends with its attempt.
    pub(crate) fn follow(&mut self, me: &Account, run: RunId, progress: &Progress<Machines>) {
        for (task, attempt) in progress.active() {
            if self.lines.len() == LAST_LINES {
                return;
            }
            if self.known.insert((task, attempt)) {
                let output = me.client.follow_output(OutputOf { run, task, attempt: Some(attempt), from: 0 });
                self.lines.push(last_lines(output).map(move |line| (task, line)).boxed());
            }
        }
    }
}

/// The line in which each piece of an output ends. The last lines are an extra, so an error only ends them.
fn last_lines(
    output: impl Stream<Item = ensemble_client::Result<impl AsRef<[u8]>>> + Send,
) -> impl Stream<Item = String> + Send {
    let lines = output.scan(Vec::new(), |line: &mut Vec<u8>, piece| {
        let text = piece.ok().map(|piece| {
            line.extend_from_slice(piece.as_ref());
            // A line that has ended is shown until the next one begins.
            let whole = line.trim_ascii_end();
            let begin = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            line.drain(..begin.max(line.len().saturating_sub(LONGEST_LINE)));
            print::short(&String::from_utf8_lossy(line), 200)
        });
        std::future::ready(text)
    });
    lines.filter(|line| std::future::ready(!line.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use ensemble_client::Error;
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn the_last_line_of_an_output_grows_and_is_replaced() {
        let long = "y".repeat(3 * LONGEST_LINE);
        let pieces = ["\n", "one", " more\n", "\n\n", "two\nthree", "\n", long.as_str(), "\nend\n"];
        let output = stream::iter(pieces.map(Ok::<_, Error>));
        let lines: Vec<String> = last_lines(output).collect().await;
        let texts: Vec<&str> = lines.iter().map(|line| line.get(..8).unwrap_or(line)).collect();
        assert_eq!(texts, ["one", "one more", "one more", "three", "three", "yyyyyyyy", "end"]);
    }
}
