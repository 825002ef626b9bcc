//! The program that joins the room: it gets its orders as JSON lines, and says what happens as such.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};

use super::error::{Error, Result};
use super::rules::Refusal;

/// What runs in Python with LiveKit's library, which brings its WebRTC with it.
pub const PROGRAM: &str = include_str!("room.py");
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
pub struct Said {
    pub(super) segment: String,
    /// The person has said it, and not the voice.
    pub me: bool,
    pub text: String,
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
pub struct Program {
    /// Takes orders, as JSON lines.
    pub orders: Box<dyn AsyncWrite + Unpin>,
    /// Has what happens, as JSON lines.
    pub events: Box<dyn AsyncRead + Unpin>,
    /// Waits some seconds until the program has ended, and says how it has.
    pub ended: Ending,
}

type Ending = Pin<Box<dyn Future<Output = String>>>;

/// The room that the program joins.
pub(super) struct Room {
    orders: Box<dyn AsyncWrite + Unpin>,
    events: Lines<BufReader<Box<dyn AsyncRead + Unpin>>>,
    ended: Option<Ending>,
}

impl Room {
    pub(super) fn of(Program { orders, events, ended }: Program) -> Self {
        Self { orders, events: BufReader::new(events).lines(), ended: Some(ended) }
    }

    /// What happens next. Cancel safe.
    ///
    /// # Errors
    /// The program has ended.
    pub(super) async fn next(&mut self) -> Result<Event> {
        match self.events.next_line().await {
            Ok(Some(line)) => serde_json::from_str(&line).map_err(|error| {
                Error::Sentence(format!("The program that joins the room says what is not understood: {error}."))
            }),
            _ => Err(self.ended().await),
        }
    }

    async fn ended(&mut self) -> Error {
        let how = match &mut self.ended {
            Some(ended) => ended.await,
            None => "before".to_owned(),
        };
        self.ended = None;
        Error::Sentence(format!("The program that joins the room has ended ({how}). Begin again."))
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
    pub(super) async fn answer(&mut self, id: u64, answer: Result<&str, &Refusal>) -> Result<()> {
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
        if let Some(ended) = self.ended {
            let _ends_on_drop = tokio::time::timeout(LEAVE_WITHIN, ended).await;
        }
    }

    async fn order(&mut self, order: &Order<'_>) -> Result<()> {
        let mut line = serde_json::to_vec(order).map_err(|error| Error::sentence(error.to_string()))?;
        line.push(b'\n');
        match self.orders.write_all(&line).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }
}
