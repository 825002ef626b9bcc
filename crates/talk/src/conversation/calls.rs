//! The calls of the agent: each is judged, shown, carried out and answered.

use std::time::Instant;

use ensemble_protocol::transcript::body::{Answer, Content};
use ensemble_screen::Level;
use serde_json::json;

use super::{Conversation, HELD, Sent, within};
use crate::error::{Error, Result};
use crate::reading;
use crate::rules::{Act, Caller, Refusal, Session};
use crate::shown::Holding;

impl Conversation<'_> {
    /// The agent calls one of the tools.
    pub(super) async fn called(&mut self, id: u64, method: &str, caller: Caller<'_>, payload: &str) -> Result<()> {
        let session =
            Session { view: &self.live.view, level: Level::of(self.live.me.id, &self.live.session, &self.live.view) };
        match self.rules.judge(Instant::now(), method, caller, payload, session) {
            Ok(act) => self.carry_out(id, act).await,
            Err(refusal) => self.refused(id, method, &refusal).await,
        }
    }

    async fn carry_out(&mut self, id: u64, act: Act) -> Result<()> {
        match act {
            Act::Send(text) => {
                self.out.happens("is sent in your name in 3 s", &text)?;
                self.held = Some(Holding { id, text, until: Some(Instant::now() + HELD) });
            }
            Act::Read { last } => {
                let reading = reading::read(self.live.session.id, &self.live.view, last);
                self.did(id, &format!("Read the session, {} messages", reading.messages.len()), "read")?;
                let text = reading::text(&reading);
                self.room.answer(id, Ok(&text)).await?;
            }
            Act::Show { request_id, title } => {
                if let Some(card) = self.live.view.open().find(|card| card.request_id == request_id) {
                    self.out.bring_up(card)?;
                }
                self.did(id, &format!("Bring up \"{title}\""), "brought up")?;
                let answer = json!({ "outcome": "shown", "requestId": request_id, "title": title }).to_string();
                self.room.answer(id, Ok(&answer)).await?;
            }
            Act::Deny { request_id, digest, option_id, title } => {
                self.did(id, &format!("Deny \"{title}\""), "being denied")?;
                let option_id = Some(option_id);
                let reply = Answer { request_id: request_id.clone(), digest, option_id, answers: None, message: None };
                let sender = self.live.sender();
                self.sending.push(Box::pin(async move {
                    let done =
                        within(async { sender.send(Content::Answer(reply)).await.map(drop).map_err(Error::from) })
                            .await;
                    Sent::Denied { call: id, request_id, title, done }
                }));
            }
        }
        Ok(())
    }

    /// Something that was sent has its result.
    pub(super) async fn sent(&mut self, sent: Sent) -> Result<()> {
        match sent {
            Sent::Message { call, done } => {
                let text = self.held.take().map(|held| held.text).unwrap_or_default();
                self.rules.sent();
                self.answer(call, &format!("Message \"{text}\""), "sent", done).await
            }
            Sent::Denied { call, request_id, title, done } => {
                if done.is_err() {
                    self.rules.not_denied(&request_id);
                }
                self.answer(call, &format!("Deny \"{title}\""), "denied", done).await
            }
            Sent::Answered { request_id, done } => match done {
                Ok(()) => Ok(()),
                Err(error) => {
                    if let Some(request_id) = request_id {
                        self.out.not_sent(&request_id);
                    }
                    self.notice(&(self.sentence)(error))
                }
            },
            Sent::News(Err(error)) => {
                let why = (self.sentence)(error);
                self.notice(&format!("The voice could not be sent what the coding agent does: {why}"))
            }
            Sent::News(Ok(())) => Ok(()),
        }
    }

    /// The person takes the message back that is shown.
    pub(super) async fn undo(&mut self) -> Result<()> {
        let Some(held) = self.held.take_if(|held| held.until.is_some()) else { return Ok(()) };
        self.rules.sent();
        self.did(held.id, &format!("Message \"{}\"", held.text), "taken back")?;
        self.room.answer(held.id, Ok(&json!({ "outcome": "undone" }).to_string())).await
    }

    async fn answer(&mut self, call: u64, what: &str, outcome: &str, done: Result<()>) -> Result<()> {
        match done {
            Ok(()) => {
                self.did(call, what, outcome)?;
                self.room.answer(call, Ok(&json!({ "outcome": outcome }).to_string())).await
            }
            Err(error) => self.refused(call, what, &Refusal { code: 502, message: (self.sentence)(error) }).await,
        }
    }

    async fn refused(&mut self, call: u64, what: &str, refusal: &Refusal) -> Result<()> {
        self.did(call, what, &format!("not done: {}", refusal.message))?;
        self.room.answer(call, Err(refusal)).await
    }

    fn did(&mut self, call: u64, what: &str, outcome: &str) -> Result<()> {
        self.out.happens(outcome, what)?;
        self.state.called(Some(call), what.to_owned(), outcome);
        Ok(())
    }
}
