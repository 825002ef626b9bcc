//! What a person sees of a conversation: on the screen of the terminal, or as lines without a terminal.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use ensemble_protocol::transcript::view::{Card, View};
use ensemble_screen::{About, Event, EventStream, Held, Look, Talk, TalkAction, Talking, Terminal, Words};
use futures_util::StreamExt;

use super::error::{Error, Result};
use super::room::Said;

/// How much of one conversation is shown and kept.
const MOST_WORDS: usize = 400;
const MOST_CALLS: usize = 100;

/// What the conversation is like now.
#[derive(Default)]
pub(super) struct State {
    pub(super) is_joined: bool,
    pub(super) is_muted: bool,
    pub(super) plays_file: bool,
    pub(super) agent: Option<String>,
    pub(super) i_speak: bool,
    pub(super) agent_speaks: bool,
    pub(super) tells_news: bool,
    pub(super) notice: Option<String>,
    words: VecDeque<Said>,
    calls: VecDeque<Call>,
}

/// What the voice did, or tries to.
struct Call {
    /// Of a call of this program's tools.
    id: Option<u64>,
    text: String,
    outcome: String,
}

/// A message that is shown before it is sent.
pub(super) struct Holding {
    /// Of the call.
    pub(super) id: u64,
    pub(super) text: String,
    /// `None`: it is being sent.
    pub(super) until: Option<Instant>,
}

/// Where a conversation is shown.
pub enum Shown {
    Screen(Look),
    Lines(Box<dyn Lines>),
}

/// Takes what happens, where there is no screen.
pub trait Lines {
    /// Words that were said to their end.
    fn said(&mut self, said: &Said) -> io::Result<()>;
    fn happens(&mut self, event: &str, about: &str) -> io::Result<()>;
    /// The voice brings a request up.
    fn request(&mut self, card: &Card) -> io::Result<()>;
}

/// The same while it is shown.
pub(super) enum Out {
    Screen(Box<OnScreen>),
    Lines(Box<dyn Lines>),
}

pub(super) struct OnScreen {
    screen: Talk,
    terminal: Terminal,
    keys: EventStream,
}

fn unusable(error: io::Error) -> Error {
    Error::Sentence(format!("The terminal cannot be used: {error}."))
}

impl State {
    pub(super) fn new(tells_news: bool, plays_file: bool) -> Self {
        Self { tells_news, plays_file, ..Self::default() }
    }

    /// The newest words, with this utterance in place of what was understood of it before.
    pub(super) fn said(&mut self, said: Said) {
        if said.text.trim().is_empty() {
            return;
        }
        match self.words.iter_mut().rfind(|one| one.segment == said.segment && one.me == said.me) {
            Some(known) => *known = said,
            None => self.words.push_back(said),
        }
        if self.words.len() > MOST_WORDS {
            self.words.pop_front();
        }
    }

    pub(super) fn words(&self) -> impl Iterator<Item = &Said> {
        self.words.iter()
    }

    /// A call has come, or is over: the same id again.
    pub(super) fn called(&mut self, id: Option<u64>, text: String, outcome: &str) {
        let outcome = outcome.to_owned();
        match self.calls.iter_mut().rfind(|call| id.is_some() && call.id == id) {
            Some(call) => *call = Call { id, text, outcome },
            None => self.calls.push_back(Call { id, text, outcome }),
        }
        if self.calls.len() > MOST_CALLS {
            self.calls.pop_front();
        }
    }

    fn talking<'a>(&'a self, held: Option<&'a Holding>) -> Talking<'a> {
        let seconds = |until: Instant| until.saturating_duration_since(Instant::now()).as_millis().div_ceil(1_000);
        Talking {
            is_connected: self.is_joined,
            is_muted: self.is_muted,
            plays_file: self.plays_file,
            agent: self.agent.as_deref(),
            i_speak: self.i_speak,
            agent_speaks: self.agent_speaks,
            tells_news: self.tells_news,
            words: self.words.iter().map(|said| Words { is_mine: said.me, text: &said.text }).collect(),
            calls: self.calls.iter().map(|call| format!("{}: {}", call.text, call.outcome)).collect(),
            held: held.map(|held| {
                let seconds = held.until.map(|until| u64::try_from(seconds(until)).unwrap_or(u64::MAX));
                Held { text: &held.text, seconds }
            }),
            notice: self.notice.as_deref(),
        }
    }
}

impl Out {
    pub(super) fn open(shown: Shown) -> Result<Self> {
        Ok(match shown {
            Shown::Lines(lines) => Self::Lines(lines),
            Shown::Screen(look) => {
                let (screen, terminal) = (Talk::new(look), Terminal::open().map_err(unusable)?);
                Self::Screen(Box::new(OnScreen { screen, terminal, keys: EventStream::new() }))
            }
        })
    }

    pub(super) fn draw(&mut self, view: &View, about: &About<'_>, state: &State, held: Option<&Holding>) -> Result<()> {
        let Self::Screen(out) = self else { return Ok(()) };
        let (screen, talking) = (&mut out.screen, state.talking(held));
        out.terminal.draw(|frame| screen.draw(frame, view, about, &talking)).map_err(unusable)
    }

    /// The next key. Never, where there is no screen. Cancel safe.
    pub(super) async fn key(&mut self) -> Result<Event> {
        match self {
            Self::Screen(out) => match out.keys.next().await {
                Some(event) => event.map_err(unusable),
                None => Err(Error::sentence("The terminal is gone.")),
            },
            Self::Lines(_) => std::future::pending().await,
        }
    }

    /// What the person wants with a key.
    pub(super) fn wish(&mut self, event: &Event, view: &View, about: &About<'_>) -> Option<TalkAction> {
        match self {
            Self::Screen(out) => out.screen.event(event, view, about),
            Self::Lines(_) => None,
        }
    }

    /// When a digit counts that was pressed, unless another key follows.
    pub(super) fn due_at(&self) -> Option<Instant> {
        match self {
            Self::Screen(out) => out.screen.due_at(),
            Self::Lines(_) => None,
        }
    }

    /// What the person wants with a digit that no other key has followed.
    pub(super) fn due(&mut self, view: &View, about: &About<'_>) -> Option<TalkAction> {
        match self {
            Self::Screen(out) => out.screen.due(view, about),
            Self::Lines(_) => None,
        }
    }

    /// Brings a request up.
    pub(super) fn bring_up(&mut self, card: &Card) -> Result<()> {
        match self {
            Self::Screen(out) => out.screen.bring_up(&card.request_id),
            Self::Lines(lines) => lines.request(card)?,
        }
        Ok(())
    }

    pub(super) fn not_sent(&mut self, request_id: &str) {
        if let Self::Screen(out) = self {
            out.screen.not_sent(request_id);
        }
    }

    /// Words that were said, where there is no screen.
    pub(super) fn said(&mut self, said: &Said) -> Result<()> {
        match self {
            Self::Lines(lines) if said.is_final && !said.text.trim().is_empty() => Ok(lines.said(said)?),
            Self::Lines(_) | Self::Screen(_) => Ok(()),
        }
    }

    /// What else happens, where there is no screen.
    pub(super) fn happens(&mut self, event: &str, about: &str) -> Result<()> {
        match self {
            Self::Lines(lines) => Ok(lines.happens(event, about)?),
            Self::Screen(_) => Ok(()),
        }
    }
}
