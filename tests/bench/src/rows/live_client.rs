//! A client of one live session. It answers what the agent asks, and sees how late cards, answers and first tokens arrive.

use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};
use ensemble_client::SessionEvent;
use ensemble_protocol::transcript::body::{Answer, Content, Message, Permission};
use ensemble_protocol::transcript::words::{Phase, ReceiptOutcome, TurnState};
use futures_util::{Stream, StreamExt};

use super::live_agent::now;
use super::live_host::{Arrived, Attached};
use super::scripted_claude::{ANSWERED, ASKED, TOKEN};

/// A person may send 30 commands a minute to a session, and some prompts and a stop are among them.
pub(super) const ASKS: usize = 20;
pub(super) const TOKENS: usize = 3;

/// Milliseconds.
#[derive(Default)]
pub(super) struct Seen {
    /// From the agent's request to a card that the client has opened.
    pub(super) cards: Vec<f64>,
    /// From before the client signs its answer until the agent has read it.
    pub(super) answers: Vec<f64>,
    /// From the first token of a text to the first frame or message with it.
    pub(super) tokens: Vec<f64>,
}

impl Seen {
    /// # Errors
    /// Something came before it was sent.
    pub(super) fn add(&mut self, other: Self) -> Result<()> {
        let all =
            [(&mut self.cards, other.cards), (&mut self.answers, other.answers), (&mut self.tokens, other.tokens)];
        for (sum, late) in all {
            ensure!(late.iter().all(|late| *late >= 0.0), "clocks differ");
            sum.extend(late);
        }
        Ok(())
    }
}

pub(super) fn is_end_of_turn(content: &Content) -> bool {
    matches!(content, Content::Turn(turn) if turn.state == TurnState::Ended)
}

/// A client, and what it has measured.
pub(super) struct Watched<'a> {
    pub(super) attached: Attached<'a>,
    pub(super) seen: Seen,
    /// When the last answer was sent.
    sent_at: f64,
    /// The first tokens that were seen, because the end of a text shows them again.
    tokens: HashSet<String>,
    turns: usize,
}

impl<'a> Watched<'a> {
    pub(super) fn new(attached: Attached<'a>) -> Self {
        Self { attached, seen: Seen::default(), sent_at: 0.0, tokens: HashSet::new(), turns: 0 }
    }

    /// Has the agent ask [`ASKS`] times and then say [`TOKENS`] texts, and follows the session until it has.
    pub(super) async fn watch(
        &mut self,
        events: &mut (impl Stream<Item = ensemble_client::Result<SessionEvent>> + Unpin),
    ) -> Result<()> {
        self.attached.prompt(format!("ask {ASKS}")).await?;
        loop {
            let event = events.next().await.context("the stream has ended")??;
            match self.attached.open(&event)? {
                Arrived::Message(message, digest) => {
                    if self.message(*message, digest).await? {
                        return Ok(());
                    }
                }
                Arrived::Frame(frame) => self.token(&frame.text),
                Arrived::Other => {}
            }
        }
    }

    /// True: the agent has said all texts.
    async fn message(&mut self, message: Message, digest: String) -> Result<bool> {
        let at = now();
        match message.content {
            Content::Permission(permission) => self.card(*permission, digest, at).await?,
            Content::Text(part) => {
                self.answered(&part.text);
                self.token(&part.text);
            }
            content if is_end_of_turn(&content) => {
                self.turns += 1;
                if self.turns > 1 {
                    return Ok(true);
                }
                self.attached.prompt(format!("say {TOKENS}")).await?;
            }
            Content::Receipt(receipt) if receipt.outcome == ReceiptOutcome::Rejected => {
                bail!("a command was rejected: {:?} {:?}", receipt.code, receipt.text)
            }
            Content::Error(failure) => bail!("the agent failed: {}", failure.text),
            Content::State(state) => ensure!(state.phase != Phase::Ended, "the session has ended"),
            _ => {}
        }
        Ok(false)
    }

    async fn card(&mut self, card: Permission, digest: String, at: f64) -> Result<()> {
        let asked_at = time(&card.detail, ASKED).context("a card without a time")?.1;
        self.seen.cards.push(at - asked_at);
        self.answered(&card.detail);
        let option = card.options.first().context("a card without options")?;
        let (option_id, request_id) = (Some(option.option_id.clone()), card.request_id);
        self.sent_at = now();
        let answer = Answer { request_id, digest, option_id, answers: None, message: None };
        self.attached.send(Content::Answer(answer)).await
    }

    fn answered(&mut self, text: &str) {
        if let Some((_, answered_at)) = time(text, ANSWERED) {
            self.seen.answers.push(answered_at - self.sent_at);
        }
    }

    fn token(&mut self, text: &str) {
        let at = now();
        if let Some((token, said_at)) = time(text, TOKEN)
            && self.tokens.insert(token.to_owned())
        {
            self.seen.tokens.push(at - said_at);
        }
    }
}

/// The time after a name: as it is written, and in milliseconds.
fn time<'t>(text: &'t str, name: &str) -> Option<(&'t str, f64)> {
    let written = text.split_once(name)?.1.split_whitespace().next()?;
    Some((written, written.parse().ok()?))
}
