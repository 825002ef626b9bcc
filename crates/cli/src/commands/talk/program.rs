//! Starts the program that joins the room.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use ensemble_talk::{PROGRAM, Program};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStderr, Command};
use tokio::time::timeout;

use crate::failure::{Failure, Result};
use crate::print;

/// How long a program that has closed its output may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Dropping the program kills it.
pub(super) fn start(python: &OsStr) -> Result<Program> {
    let cannot = |error: std::io::Error| Failure::message(format!("{} cannot be started: {error}.", python.display()));
    let mut child = Command::new(python)
        .args(["-I", "-u", "-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C of the terminal is for this program, which ends it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(cannot)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(orders), Some(events), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(Failure::message("The program that joins the room has no input and output."));
    };
    let errors = tokio::spawn(last_line(stderr));
    let ended = async move {
        let status = match timeout(ENDS_WITHIN, child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => "no exit status".to_owned(),
        };
        let said = timeout(ENDS_WITHIN, errors).await.ok().and_then(std::result::Result::ok);
        let said = said.filter(|line| !line.is_empty()).map(|line| format!(", after: {}", print::short(&line, 300)));
        status + &said.unwrap_or_default()
    };
    Ok(Program { orders: Box::new(orders), events: Box::new(events), ended: Box::pin(ended) })
}

/// The last line of its errors.
async fn last_line(stderr: ChildStderr) -> String {
    let (mut lines, mut last) = (BufReader::new(stderr).lines(), String::new());
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.trim().is_empty() {
            last = line;
        }
    }
    last
}
