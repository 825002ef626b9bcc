//! What happens outside of the room: in the session, on the server, and at the keys.

use std::time::Instant;

use ensemble_account::live::Watched;
use ensemble_client::{SessionEvent, VoiceEvent, idempotency_key};
use ensemble_screen::{Action, Event, TalkAction};
use ensemble_types::text::{Blob, Text};
use ensemble_types::voice::SayVoiceText;

use super::{Conversation, Sent, Then, about};
use crate::error::{Error, Result};

impl Conversation<'_> {
    pub(super) async fn in_session(&mut self, watched: Watched) -> Result<()> {
        match watched {
            Watched::Connected => match self.live.renew().await {
                Err(ensemble_account::Error::Client(error)) if error.is_passing() => self.watch.lost(),
                refreshed => {
                    refreshed?;
                    (self.away, self.seen) = (None, Instant::now());
                }
            },
            Watched::Away => {
                self.away.get_or_insert_with(Instant::now);
            }
            Watched::Event(event) => {
                let (seq, is_of_machine) = match &event {
                    SessionEvent::Message(message) => (Some(message.seq), message.sender_machine_id.is_some()),
                    SessionEvent::Live(_) => (None, true),
                    SessionEvent::Changed(_) => (None, false),
                };
                match self.live.event(event).await {
                    // Its signer could not be found. It comes again.
                    Err(ensemble_account::Error::Client(error)) if error.is_passing() => {
                        self.away.get_or_insert_with(Instant::now);
                        self.watch.lost();
                        return Ok(());
                    }
                    taken => drop(taken?),
                }
                if let Some(seq) = seq {
                    self.watch.taken(seq);
                }
                if is_of_machine {
                    self.live.session.online = true;
                    self.seen = Instant::now();
                }
                self.tell_news();
            }
        }
        Ok(())
    }

    /// Has the voice say what is new in the session, unless the person has switched that off.
    fn tell_news(&mut self) {
        let news = self.known.news(&self.live.view).filter(|_| self.state.tells_news && self.state.is_joined);
        let Some(news) = news else { return };
        let (Ok(text), Ok(id), Ok(message_id)) =
            (Blob::new(news.to_owned()), Text::new(self.id.to_string()), Text::new(idempotency_key()))
        else {
            return;
        };
        let say = SayVoiceText { gateway_session_id: id, text, interrupt: None, message_id: Some(message_id) };
        let voice = self.voice.clone();
        self.sending
            .push(Box::pin(async move { Sent::News(voice.say_voice(&say).await.map(drop).map_err(Into::into)) }));
    }

    /// What the agent reads on the server, and what fails in it.
    pub(super) fn on_server(&mut self, event: Option<ensemble_client::Result<VoiceEvent>>) -> Result<()> {
        match event {
            Some(Ok(VoiceEvent::Tool(call))) => {
                let what = match call.name.as_str() {
                    "runs.list" => "List the runs".to_owned(),
                    "runs.show" => format!("Show the run {}", call.run.as_deref().unwrap_or("?")),
                    "sessions.list" => "List the sessions".to_owned(),
                    other => other.to_owned(),
                };
                self.out.happens("read on the server", &what)?;
                self.state.called(None, what, "read on the server");
            }
            Some(Ok(VoiceEvent::Status(status))) => {
                if let Some(error) = status.last_error {
                    let why = error.message.unwrap_or(error.code);
                    self.notice(&format!(
                        "The voice agent has a problem: {why}. If it stays so, tell the operator of the server."
                    ))?;
                }
            }
            Some(Ok(VoiceEvent::Utterance(_))) => {}
            Some(Err(error)) => {
                self.events = None;
                self.notice(&format!("What the voice reads on the server cannot be shown: {error}"))?;
            }
            // It is over. The room says so as well.
            None => self.events = None,
        }
        Ok(())
    }

    pub(super) async fn keyed(&mut self, event: Option<&Event>) -> Result<Then> {
        let name = |user| self.live.known_name(user);
        let about = about(&self.live, (&self.title, &self.me), self.connection(), &name);
        let wish = match event {
            Some(event) => self.out.wish(event, &self.live.view, &about),
            None => self.out.due(&self.live.view, &about),
        };
        match wish {
            Some(TalkAction::End) => return Ok(Then::Ends),
            Some(TalkAction::Mute) if self.state.is_joined => {
                self.state.is_muted = !self.state.is_muted;
                self.room.mute(self.state.is_muted).await?;
            }
            Some(TalkAction::Undo) => self.undo().await?,
            Some(TalkAction::News) => self.state.tells_news = !self.state.tells_news,
            Some(TalkAction::Answer(action)) => self.answer_card(action),
            Some(TalkAction::Mute) | None => {}
        }
        Ok(Then::Continues)
    }

    /// The person has answered a request by a key.
    fn answer_card(&mut self, action: Action) {
        let request_id = match &action {
            Action::Answer { request_id, .. } => Some(request_id.clone()),
            _ => None,
        };
        let Some(content) = action.content(self.live.directory()) else { return };
        let sender = self.live.sender();
        self.sending.push(Box::pin(async move {
            let done = sender.send(content).await.map(drop).map_err(Error::from);
            Sent::Answered { request_id, done }
        }));
    }
}
