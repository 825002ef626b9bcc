//! The program that joins the room: it is started, gets its orders as JSON lines, and ends when this program does.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::rules::Refusal;
use crate::failure::{Failure, Result};
use crate::print;

/// LiveKit's library for Python is the one that brings its WebRTC with it.
const PROGRAM: &str = include_str!("room.py");
/// How long it may take to leave the room.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// What happens in the room, as the program says it.
#[derive(Debug, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub(super) enum Event {
    /// The microphone and the loudspeaker, or the files, can be used.
    Open,
    Joined,
    /// The agent's state; nothing: it is not in the room.
    Agent {
        state: Option<String>,
    },
    Speaking {
        me: bool,
        agent: bool,
    },
    Said(Said),
    #[serde(rename_all = "camelCase")]
    Call {
        id: u64,
        method: String,
        caller: String,
        is_agent: bool,
        payload: String,
    },
    /// The connection is being mended, or is back.
    Mending {
        mending: bool,
    },
    /// The file in place of the microphone is over.
    Played,
    Left {
        why: Left,
    },
    Failed {
        what: String,
        why: String,
    },
}

/// A part of what was said: the same segment again has grown, or is put another way.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Said {
    pub(super) segment: String,
    pub(super) me: bool,
    pub(super) text: String,
    #[serde(rename = "final")]
    pub(super) is_final: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Left {
    /// The server ended the conversation.
    Closed,
    /// It was opened in another place.
    Elsewhere,
    Lost,
}

#[derive(Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Order<'a> {
    Open {
        input: Option<&'a Path>,
        output: Option<&'a Path>,
    },
    Join {
        url: &'a str,
        token: &'a str,
        agent: &'a str,
    },
    Mute {
        muted: bool,
    },
    Answer {
        id: u64,
        #[serde(flatten)]
        answer: Answer<'a>,
    },
    Leave,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    Done { text: &'a str },
    Refused { code: u16, message: &'a str },
}

/// The running program. Dropping it ends it.
pub(super) struct Room {
    child: Child,
    orders: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
    /// The last line of its errors.
    errors: Option<JoinHandle<String>>,
}

impl Room {
    pub(super) fn start(python: &OsStr) -> Result<Self> {
        let cannot =
            |error: std::io::Error| Failure::message(format!("{} cannot be started: {error}.", python.display()));
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
        let (Some(orders), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(Failure::message("The program that joins the room has no input and output."));
        };
        let events = BufReader::new(stdout).lines();
        Ok(Self { child, orders, events, errors: Some(tokio::spawn(last_line(stderr))) })
    }

    /// What happens next. Cancel safe.
    ///
    /// # Errors
    /// The program has ended.
    pub(super) async fn next(&mut self) -> Result<Event> {
        match self.events.next_line().await {
            Ok(Some(line)) => serde_json::from_str(&line).map_err(|error| {
                Failure::message(format!("The program that joins the room says what is not understood: {error}."))
            }),
            _ => Err(self.ended().await),
        }
    }

    async fn ended(&mut self) -> Failure {
        let status = match tokio::time::timeout(LEAVE_WITHIN, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => "no exit status".to_owned(),
        };
        let said = match self.errors.take() {
            Some(errors) => tokio::time::timeout(LEAVE_WITHIN, errors).await.ok().and_then(std::result::Result::ok),
            None => None,
        };
        let said = said.filter(|line| !line.is_empty()).map(|line| format!(", after: {}", print::short(&line, 300)));
        Failure::message(format!(
            "The program that joins the room has ended ({status}{}). Begin again.",
            said.unwrap_or_default()
        ))
    }

    pub(super) async fn open(&mut self, input: Option<&Path>, output: Option<&Path>) -> Result<()> {
        self.order(&Order::Open { input, output }).await
    }

    pub(super) async fn join(&mut self, url: &str, token: &str, agent: &str) -> Result<()> {
        self.order(&Order::Join { url, token, agent }).await
    }

    pub(super) async fn mute(&mut self, muted: bool) -> Result<()> {
        self.order(&Order::Mute { muted }).await
    }

    /// Answers a call of the agent.
    pub(super) async fn answer(&mut self, id: u64, answer: std::result::Result<&str, &Refusal>) -> Result<()> {
        let answer = match answer {
            Ok(text) => Answer::Done { text },
            Err(refusal) => Answer::Refused { code: refusal.code, message: &refusal.message },
        };
        self.order(&Order::Answer { id, answer }).await
    }

    /// Leaves the room. A program that does not end is killed.
    pub(super) async fn leave(mut self) {
        // One that has ended already needs no order.
        let _ended = self.order(&Order::Leave).await;
        let _killed_on_drop = tokio::time::timeout(LEAVE_WITHIN, self.child.wait()).await;
    }

    async fn order(&mut self, order: &Order<'_>) -> Result<()> {
        let mut line = serde_json::to_vec(order).map_err(|error| Failure::message(error.to_string()))?;
        line.push(b'\n');
        match self.orders.write_all(&line).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }
}

async fn last_line(stderr: ChildStderr) -> String {
    let (mut lines, mut last) = (BufReader::new(stderr).lines(), String::new());
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.trim().is_empty() {
            last = line;
        }
    }
    last
}
