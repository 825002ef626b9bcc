//! The screen of a conversation by voice: small and quiet, because the person speaks and only glances at it. It shows who is there, the
//! last words, a message that is about to be sent, and the open request with its keys.

mod draw;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ensemble_protocol::transcript::view::View;

use crate::about::{About, Look};
use crate::action::Action;
use crate::cards::{Cards, Pressed, Typing};
use crate::paint::Paint;

/// Where the person types nothing.
const NOTHING_TYPED: Typing = Typing { is_empty: true, last: None };

/// What is on the screen of a conversation. The caller builds it for each frame.
#[derive(Clone, Debug, Default)]
pub struct Talking<'a> {
    pub is_connected: bool,
    pub is_muted: bool,
    /// The microphone is a file.
    pub plays_file: bool,
    /// The agent's state in its own word. `None`: it is not in the room.
    pub agent: Option<&'a str>,
    pub i_speak: bool,
    pub agent_speaks: bool,
    /// The voice says by itself when the coding agent asks or ends.
    pub tells_news: bool,
    /// The newest words, oldest first.
    pub words: Vec<Words<'a>>,
    /// What the voice did, newest last.
    pub calls: Vec<String>,
    /// A message that is sent in a moment.
    pub held: Option<Held<'a>>,
    pub notice: Option<&'a str>,
}

/// An utterance.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    pub is_mine: bool,
    pub text: &'a str,
}

/// A message of the voice that can still be taken back.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    pub text: &'a str,
    /// Seconds until it is sent. `None`: it is being sent.
    pub seconds: Option<u64>,
}

/// What the person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TalkAction {
    Mute,
    /// The message that is shown is not sent.
    Undo,
    /// The voice tells news by itself, or does no longer.
    News,
    /// The answer to a request of the agent.
    Answer(Action),
    End,
}

/// The screen of one conversation.
pub struct Talk {
    pub(crate) paint: Paint,
    pub(crate) cards: Cards,
}

impl Talk {
    pub fn new(look: Look) -> Self {
        Self { paint: Paint(look), cards: Cards::without_text() }
    }

    /// Brings the card of this request up.
    pub fn bring_up(&mut self, request_id: &str) {
        self.cards.bring_up(request_id);
    }

    /// An answer could not be sent: its card can be answered again.
    pub fn not_sent(&mut self, request_id: &str) {
        self.cards.not_sent(request_id);
    }

    /// Takes an event of the terminal. What the person wants, if it says so.
    pub fn event(&mut self, event: &Event, view: &View, about: &About<'_>) -> Option<TalkAction> {
        self.cards.keep_up(view, about);
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                // There is no text that the digit before could be part of.
                self.cards.release();
                self.key(*key, view, about)
            }
            _ => None,
        }
    }

    /// When [`Self::due`] is to be asked, unless there is a key before.
    pub fn due_at(&self) -> Option<std::time::Instant> {
        self.cards.due_at()
    }

    /// What the person wants with a digit that no other key has followed.
    pub fn due(&mut self, view: &View, about: &About<'_>) -> Option<TalkAction> {
        self.cards.keep_up(view, about);
        match self.cards.due(view, about, NOTHING_TYPED)?.1 {
            Pressed::Wants(action) => Some(TalkAction::Answer(action)),
            Pressed::Not | Pressed::Done => None,
        }
    }

    fn key(&mut self, key: KeyEvent, view: &View, about: &About<'_>) -> Option<TalkAction> {
        let has_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if has_ctrl => return Some(TalkAction::End),
            KeyCode::Char('q') => return Some(TalkAction::End),
            KeyCode::Char('m') => return Some(TalkAction::Mute),
            KeyCode::Char('n') => return Some(TalkAction::News),
            KeyCode::Esc if self.cards.closes_list() => return None,
            KeyCode::Char('u') | KeyCode::Esc => return Some(TalkAction::Undo),
            KeyCode::Tab => {
                self.cards.tab(view, about, NOTHING_TYPED);
                return None;
            }
            _ => {}
        }
        match self.cards.key(key, view, about, NOTHING_TYPED) {
            Pressed::Wants(action) => Some(TalkAction::Answer(action)),
            Pressed::Not | Pressed::Done => None,
        }
    }
}
