//! One conversation from the moment that the room is joined to its end: what the room, the session, the server and the person say, one after
//! the other.

mod calls;
mod session;

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use ensemble_account::live::{Live, SILENT, Watch};
use ensemble_client::{Client, VoiceEvent};
use ensemble_protocol::transcript::body::{Content, Prompt};
use ensemble_protocol::transcript::words::When;
use ensemble_screen::{About, Connection, Level, Me};
use ensemble_types::ids::{GatewaySessionId, UserId};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, FuturesUnordered};
use tokio::time::{sleep_until, timeout};

use super::error::{Error, Result};
use super::news::Known;
use super::room::{Event, Left, Room, Said};
use super::rules::{Caller, Rules};
use super::shown::{Holding, Out, State};
use super::stopped;

/// How long a message is shown before it is sent.
const HELD: Duration = Duration::from_secs(3);
/// How long a command may take: the voice waits 20 s for all of it.
const WITHIN: Duration = Duration::from_secs(12);
/// An agent that has not come after this is said to be missing. The server tries three times.
const AGENT_WITHIN: Duration = Duration::from_secs(45);
/// A room that is not joined by then cannot be reached.
const JOIN_WITHIN: Duration = Duration::from_secs(40);
/// When the server cannot be reached for this long, the conversation ends: nothing can be sent or read.
const AWAY: Duration = Duration::from_secs(30);
/// The room is left after this at the latest, whether the server has ended the conversation or not.
const STOPPED_WITHIN: Duration = Duration::from_secs(3);

/// How the person wants it.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    /// A file in place of the microphone.
    pub(super) plays_file: bool,
    /// How long to continue after the file in place of the microphone is over.
    pub(super) listen: Duration,
    pub(super) tells_news: bool,
}

type Events = BoxStream<'static, ensemble_client::Result<VoiceEvent>>;

/// Something on its way, with its result.
type Sending<'a> = Pin<Box<dyn Future<Output = Sent> + 'a>>;

enum Sent {
    Message { call: u64, done: Result<()> },
    Denied { call: u64, request_id: String, title: String, done: Result<()> },
    Answered { request_id: Option<String>, done: Result<()> },
    News(Result<()>),
}

pub(super) struct Conversation<'a> {
    live: Live,
    me: Me,
    title: String,
    voice: Client,
    id: GatewaySessionId,
    room: Room,
    rules: Rules,
    known: Known,
    watch: Watch,
    /// What happens in the voice session. `None`: it is not followed any more.
    events: Option<Events>,
    sending: FuturesUnordered<Sending<'a>>,
    held: Option<Holding>,
    pub(super) state: State,
    out: Out,
    /// What a person reads of a failure.
    sentence: fn(Error) -> String,
    wishes: Wishes,
    begun: Instant,
    /// When the connection to the server was lost.
    away: Option<Instant>,
    /// When the machine was last seen.
    seen: Instant,
    /// When it is over after the file.
    until: Option<Instant>,
}

/// What the screen has to know that is not in the view.
fn about<'a>(
    live: &Live,
    (title, me): (&'a str, &'a Me),
    connection: Connection,
    name: &'a dyn Fn(UserId) -> String,
) -> About<'a> {
    let (level, owner) = (Level::of(me.user, &live.session, &live.view), live.session.owner_id);
    About { title, connection, level, me, owner, name, home: "", now: Instant::now() }
}

/// Whether it continues.
enum Then {
    Continues,
    Ends,
}

impl<'a> Conversation<'a> {
    /// `after` is what [`Live::load`] returned, and `rules` are those of the start's answer.
    pub(super) fn new(
        (live, after): (Live, i64),
        (voice, id): (Client, GatewaySessionId),
        (room, rules): (Room, Rules),
        (out, sentence): (Out, fn(Error) -> String),
        wishes: Wishes,
    ) -> Self {
        let now = Instant::now();
        let state = State::new(wishes.tells_news, wishes.plays_file);
        Self {
            me: Me { user: live.me.id, key: live.me.key.public_key() },
            title: live.title(),
            known: Known::of(&live.view),
            watch: Watch::new(live.me.client.clone(), live.session.id, after),
            events: Some(voice.follow_voice(id).boxed()),
            sending: FuturesUnordered::new(),
            held: None,
            live,
            voice,
            id,
            room,
            rules,
            state,
            out,
            sentence,
            wishes,
            begun: now,
            away: None,
            seen: now,
            until: None,
        }
    }

    /// Runs until the person or `until` ends it.
    ///
    /// # Errors
    /// The room, the server or the program that joined the room ended it.
    pub(super) async fn run(&mut self, mut until: Pin<&mut impl Future<Output = ()>>) -> Result<()> {
        loop {
            self.draw()?;
            let due = self.next_time();
            let then = tokio::select! {
                // A key that waits is there before a digit counts.
                biased;
                key = self.out.key() => self.keyed(Some(&key?)).await?,
                event = self.room.next() => self.in_room(event?).await?,
                watched = self.watch.next() => {
                    self.in_session(watched?).await?;
                    Then::Continues
                }
                event = next(&mut self.events) => {
                    self.on_server(event)?;
                    Then::Continues
                }
                Some(sent) = self.sending.next() => {
                    self.sent(sent).await?;
                    Then::Continues
                }
                () = sleep_until(due.into()) => self.on_time().await?,
                () = &mut until => Then::Ends,
            };
            if matches!(then, Then::Ends) {
                return Ok(());
            }
        }
    }

    /// Ends it. Nothing that is still shown is sent, and the terminal is given back. The server ends it first: a room that is left
    /// before would end as one whose person went away.
    pub(super) async fn end(mut self) -> State {
        self.rules.end();
        self.held = None;
        drop(self.out);
        // The microphone must not stay open while the server cannot be reached.
        let _server_is_away = tokio::time::timeout(STOPPED_WITHIN, stopped(&self.voice, self.id)).await;
        self.room.leave().await;
        self.state
    }

    fn connection(&self) -> Connection {
        let (is_connected, is_held_back) = (self.away.is_none(), self.live.me.client.is_held_back());
        Connection::of(&self.live.session, is_connected, self.live.problem().is_some(), is_held_back)
    }

    fn draw(&mut self) -> Result<()> {
        let name = |user| self.live.known_name(user);
        let about = about(&self.live, (&self.title, &self.me), self.connection(), &name);
        self.out.draw(&self.live.view, &about, &self.state, self.held.as_ref())
    }

    /// When something is due, or the seconds on the screen change.
    fn next_time(&self) -> Instant {
        let now = Instant::now();
        let held =
            self.held.as_ref().and_then(|held| held.until).map(|until| until.min(now + Duration::from_millis(500)));
        let silent = (self.away.is_none() && self.live.session.online).then_some(self.seen + SILENT);
        let missing = self.state.agent.is_none().then_some(self.begun + AGENT_WITHIN).filter(|at| *at > now);
        let join = (!self.state.is_joined).then_some(self.begun + JOIN_WITHIN);
        let away = self.away.map(|away| away + AWAY);
        let last = now + Duration::from_secs(60);
        [held, silent, missing, join, away, self.until, self.out.due_at()]
            .into_iter()
            .flatten()
            .fold(last, Instant::min)
    }

    async fn on_time(&mut self) -> Result<Then> {
        let now = Instant::now();
        if self.until.is_some_and(|until| until <= now) {
            return Ok(Then::Ends);
        }
        self.keyed(None).await?;
        if !self.state.is_joined && self.begun + JOIN_WITHIN <= now {
            return Err(Error::sentence(
                "The voice service does not let this program in. Try again; if it stays so, tell the operator of the server.",
            ));
        }
        if self.away.is_some_and(|away| away + AWAY <= now) {
            return Err(Error::sentence(
                "The server is away, so the conversation has ended. Nothing that was still shown is sent.",
            ));
        }
        if self.state.agent.is_none() && self.begun + AGENT_WITHIN <= now {
            self.notice("No voice agent has come yet. Wait a little, or end and begin again.")?;
        }
        if self.away.is_none() && self.live.session.online && self.seen + SILENT <= now {
            // A machine that was silent for a minute is offline for the server, which sends no event for it.
            let _unknown = self.live.refresh().await;
            self.seen = now;
        }
        if let Some(held) = self.held.as_mut().filter(|held| held.until.is_some_and(|until| until <= now)) {
            held.until = None;
            let (call, text) = (held.id, held.text.clone());
            let directory = self.live.directory();
            let content = Content::Prompt(Prompt { text, attachments: Vec::new(), when: When::Next, directory });
            let sender = self.live.sender();
            self.sending.push(Box::pin(async move {
                let done = within(async { sender.send(content).await.map(drop).map_err(Error::from) }).await;
                Sent::Message { call, done }
            }));
        }
        Ok(Then::Continues)
    }

    fn notice(&mut self, text: &str) -> Result<()> {
        if self.state.notice.as_deref() != Some(text) {
            self.out.happens("notice", text)?;
            self.state.notice = Some(text.to_owned());
        }
        Ok(())
    }

    async fn in_room(&mut self, event: Event) -> Result<Then> {
        match event {
            Event::Open => {}
            Event::Joined => self.state.is_joined = true,
            Event::Agent { state } => self.agent(state)?,
            Event::Speaking { me, agent } => (self.state.i_speak, self.state.agent_speaks) = (me, agent),
            Event::Said(said) => self.said(said)?,
            Event::Call { id, method, caller, is_agent, payload } => {
                let caller = Caller { identity: &caller, is_agent };
                self.called(id, &method, caller, &payload).await?;
            }
            Event::Mending { mending: true } => self.notice("The connection broke. It is being mended.")?,
            Event::Mending { mending: false } => self.state.notice = None,
            Event::Played => self.until = Some(Instant::now() + self.wishes.listen),
            Event::Left { why } => return Err(Error::sentence(left(why))),
            Event::Failed { what, why } => return Err(Error::Room { what, why }),
        }
        Ok(Then::Continues)
    }

    fn agent(&mut self, state: Option<String>) -> Result<()> {
        let was_here = self.state.agent.is_some();
        match &state {
            None if was_here => {
                self.notice("The voice agent has left. Another one may come; or end and begin again.")?
            }
            Some(_) if !was_here => {
                self.state.notice = None;
                self.out.happens("agent", "the voice is here")?;
            }
            _ => {}
        }
        self.state.agent = state;
        Ok(())
    }

    fn said(&mut self, said: Said) -> Result<()> {
        self.out.said(&said)?;
        self.state.said(said);
        Ok(())
    }
}

/// The next event. Never, where nothing is followed. Cancel safe.
async fn next(events: &mut Option<Events>) -> Option<ensemble_client::Result<VoiceEvent>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

/// A command to the session that has to be over before the voice stops waiting.
async fn within(done: impl Future<Output = Result<()>>) -> Result<()> {
    timeout(WITHIN, done)
        .await
        .unwrap_or_else(|_| Err(Error::sentence("The server has not answered. It may have been done.")))
}

fn left(why: Left) -> &'static str {
    match why {
        Left::Closed => {
            "The server has ended the conversation: its time is over, or no voice agent came. You can begin another one."
        }
        Left::Elsewhere => "This conversation continues in another place.",
        Left::Lost => {
            "The connection to the voice service broke and did not come back. Check your network, then begin again."
        }
    }
}
