//! Open requests: which one is shown, what its keys do, and when it takes keys at all.

mod draw;
mod permission;
mod question;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ensemble_protocol::transcript::Choices;
use ensemble_protocol::transcript::view::{Asks, Author, Card, Shown, Taken, View};

use crate::about::{About, Level};
use crate::action::Action;

use permission::Listed;
use question::Choosing;

/// A card takes no key so soon after it appeared, or after another one was answered.
const STANDS: Duration = Duration::from_secs(1);
/// Nor so soon after the person typed something else.
const QUIET: Duration = Duration::from_millis(1_500);
/// A digit counts only when no other key follows so soon: then it was the beginning of a text.
const ALONE: Duration = Duration::from_millis(250);
/// The newest items among which the answers of this screen are.
const MOST_LOOKED_AT: usize = 300;
/// The options that have a key.
const MOST_KEYS: usize = 9;

/// The cards of the open requests.
#[derive(Default)]
pub(crate) struct Cards {
    /// The request that the person has moved to.
    chosen: Option<String>,
    shown: Option<ShownCard>,
    /// The requests that were answered here, with the id that the answer's item has at least.
    sent: HashMap<String, u64>,
    /// The card that `choosing` and `scroll` are of.
    laid_out: Option<String>,
    choosing: Option<Choosing>,
    /// The options of a permission, while arrows move through them.
    listed: Option<Listed>,
    /// A digit that counts when no other key follows.
    held: Option<Held>,
    body: Option<draw::Body>,
    /// The first line of the body that is shown, and how many could follow it.
    scroll: usize,
    most_scroll: usize,
    rows: usize,
    /// The options were on the screen. They are not at once where there are only a few rows.
    has_shown_options: bool,
    /// There is no field for texts below.
    has_no_text: bool,
}

/// A digit that was pressed for this card.
struct Held {
    key: KeyEvent,
    request_id: String,
    until: Instant,
}

/// The card that the last frame showed.
struct ShownCard {
    request_id: String,
    since: Instant,
    /// There was a text when it appeared, and there has been one since: that text is no answer to it.
    is_typed_before: bool,
}

/// The effect of a key.
pub(crate) enum Pressed {
    /// The card has no use for it.
    Not,
    Done,
    Wants(Action),
}

/// Where the person is typing.
#[derive(Clone, Copy)]
pub(crate) struct Typing {
    pub(crate) is_empty: bool,
    /// The last time that a key changed the text.
    pub(crate) last: Option<Instant>,
}

impl Cards {
    /// Cards of a screen where no text can be typed.
    pub(crate) fn without_text() -> Self {
        Self { has_no_text: true, ..Self::default() }
    }

    /// Shows the card of this request.
    pub(crate) fn bring_up(&mut self, request_id: &str) {
        self.chosen = Some(request_id.to_owned());
    }

    /// The card that is shown: the one that was chosen, or the oldest that waits for this person.
    pub(crate) fn current<'a>(&self, view: &'a View) -> Option<&'a Card> {
        let chosen = self.chosen.as_ref().and_then(|id| view.open().find(|card| card.request_id == *id));
        chosen
            .or_else(|| view.open().find(|card| !self.sent.contains_key(&card.request_id)))
            .or_else(|| view.open().next())
    }

    /// Shows the next card.
    fn next(&mut self, view: &View) {
        let ids: Vec<&str> = view.open().map(|card| card.request_id.as_str()).collect();
        let Some(now) = self.current(view).filter(|_| ids.len() > 1) else { return };
        let place = ids.iter().position(|id| *id == now.request_id).unwrap_or(0);
        self.chosen = ids.get((place + 1) % ids.len()).map(|id| (*id).to_owned());
    }

    /// Forgets what is closed, and takes back answers that the host has rejected. Called before each frame and key.
    pub(crate) fn keep_up(&mut self, view: &View, about: &About<'_>) {
        let is_open = |id: &str| view.open().any(|card| card.request_id == id);
        self.sent.retain(|id, _| is_open(id));
        if self.chosen.as_ref().is_some_and(|id| !is_open(id)) {
            self.chosen = None;
        }
        if self.sent.is_empty() {
            return;
        }
        for item in view.items().rev().take(MOST_LOOKED_AT) {
            let Shown::Answer(answer, Taken::Rejected { .. }) = &item.shown else { continue };
            let is_mine = matches!(&item.author, Author::Person { key, .. } if *key == about.me.key);
            if is_mine && self.sent.get(&answer.request_id).is_some_and(|from| item.id >= *from) {
                self.sent.remove(&answer.request_id);
            }
        }
    }

    /// An answer could not be sent: the card may be answered again.
    pub(crate) fn not_sent(&mut self, request_id: &str) {
        self.sent.remove(request_id);
    }

    pub(crate) fn is_sent(&self, card: &Card) -> bool {
        self.sent.contains_key(&card.request_id)
    }

    /// The frame shows no card, so none takes keys.
    pub(crate) fn hide(&mut self) {
        self.shown = None;
    }

    /// The card that the frame shows now. Its time runs from here.
    fn appears(&mut self, card: Option<&Card>, typing: Typing, now: Instant) {
        let Some(card) = card else {
            self.shown = None;
            return;
        };
        if self.shown.as_ref().is_none_or(|shown| shown.request_id != card.request_id) {
            let request_id = card.request_id.clone();
            self.shown = Some(ShownCard { request_id, since: now, is_typed_before: !typing.is_empty });
            if self.laid_out.as_ref() != Some(&card.request_id) {
                self.laid_out = Some(card.request_id.clone());
                self.scroll = 0;
                self.has_shown_options = false;
                self.choosing = Choosing::of(card);
                self.listed = None;
            }
        }
        if let Some(shown) = self.shown.as_mut().filter(|_| typing.is_empty) {
            shown.is_typed_before = false;
        }
    }

    /// The text has changed. One that is begun as the card appears was begun for something else.
    pub(crate) fn typed(&mut self, now: Instant) {
        if let Some(shown) = self.shown.as_mut().filter(|shown| !is_past(shown.since, now, STANDS)) {
            shown.is_typed_before = true;
        }
    }

    /// Whether this card may be answered now: the person has seen what can be chosen, and is not typing something else.
    fn is_ready(&self, card: &Card, about: &About<'_>, typing: Typing) -> bool {
        let shown = self.shown.as_ref().filter(|shown| shown.request_id == card.request_id);
        about.level >= Level::Approve
            && !self.is_sent(card)
            && self.has_shown_options
            && shown.is_some_and(|shown| is_past(shown.since, about.now, STANDS))
            && typing.last.is_none_or(|last| is_past(last, about.now, QUIET))
    }

    /// Whether the text below is an answer to the question that is shown.
    pub(crate) fn takes_text(&self, view: &View, about: &About<'_>) -> bool {
        let Some(card) = self.current(view) else { return false };
        let shown = self.shown.as_ref().filter(|shown| shown.request_id == card.request_id);
        matches!(card.asks, Asks::Question(_))
            && about.level >= Level::Approve
            && !self.is_sent(card)
            && shown.is_some_and(|shown| !shown.is_typed_before && is_past(shown.since, about.now, STANDS))
    }

    /// Takes the text as the answer to the question that is shown.
    pub(crate) fn text(&mut self, text: String, view: &View) -> Option<Action> {
        let card = self.current(view)?;
        let answers = self.choosing.as_mut()?.text(text)?;
        Some(self.answer(card, view, None, Some(answers), None))
    }

    /// A key while the text below is empty. A digit counts later: see [`Self::due`].
    pub(crate) fn key(&mut self, key: KeyEvent, view: &View, about: &About<'_>, typing: Typing) -> Pressed {
        let Some(card) = self.current(view) else { return Pressed::Not };
        if !key.modifiers.difference(KeyModifiers::SHIFT).is_empty() {
            return Pressed::Not;
        }
        let KeyCode::Char(digit @ '0'..='9') = key.code else { return self.act(key.code, card, view, about, typing) };
        let is_offered = match &card.asks {
            Asks::Permission(permission) => Choices::of(permission).has(digit),
            Asks::Question(_) => self.choosing.as_ref().is_some_and(|choosing| choosing.has(digit)),
        };
        if !is_offered || key.kind != KeyEventKind::Press || !self.is_ready(card, about, typing) {
            return Pressed::Not;
        }
        self.held = Some(Held { key, request_id: card.request_id.clone(), until: about.now + ALONE });
        Pressed::Done
    }

    /// When the digit that was pressed counts.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Another key follows: the digit that was pressed is the beginning of a text.
    pub(crate) fn release(&mut self) -> Option<KeyEvent> {
        self.held.take().map(|held| held.key)
    }

    /// Takes the digit that was pressed, once no other key has followed. [`Pressed::Not`]: its card is gone.
    pub(crate) fn due(&mut self, view: &View, about: &About<'_>, typing: Typing) -> Option<(KeyEvent, Pressed)> {
        let Held { key, request_id, .. } = self.held.take_if(|held| held.until <= about.now)?;
        let card = self.current(view).filter(|card| card.request_id == request_id);
        let pressed = match card.filter(|card| self.is_ready(card, about, typing)) {
            Some(card) => self.act(key.code, card, view, about, typing),
            None => Pressed::Not,
        };
        Some((key, pressed))
    }

    fn act(&mut self, key: KeyCode, card: &Card, view: &View, about: &About<'_>, typing: Typing) -> Pressed {
        let is_ready = self.is_ready(card, about, typing);
        let Asks::Permission(permission) = &card.asks else {
            let step = self.choosing.as_mut().filter(|_| is_ready).map(|choosing| choosing.key(key));
            return match step {
                None | Some(question::Step::Not) => Pressed::Not,
                Some(question::Step::Stays) => Pressed::Done,
                Some(question::Step::Answered(answers)) => Pressed::Wants(self.answer(card, view, None, answers, None)),
            };
        };
        let choices = Choices::of(permission);
        if let Some(listed) = &mut self.listed {
            match listed.key(key, &choices, is_ready, about.level >= Level::Owner) {
                permission::Step::Not => {}
                permission::Step::Stays => return Pressed::Done,
                permission::Step::Closes => {
                    self.listed = None;
                    return Pressed::Done;
                }
                permission::Step::Chosen(option) => {
                    self.listed = None;
                    return Pressed::Wants(self.answer(card, view, Some(option), None, None));
                }
            }
        }
        // A space would begin a text, and the keys would no longer be the card's.
        if self.scrolls(key) || key == KeyCode::Char(' ') {
            return Pressed::Done;
        }
        if !is_ready {
            return Pressed::Not;
        }
        if key == KeyCode::Char('4') && choices.has('4') {
            self.listed = Some(Listed::further());
            return Pressed::Done;
        }
        let Some(option) = key.as_char().and_then(|digit| choices.option(digit)) else { return Pressed::Not };
        Pressed::Wants(self.answer(card, view, Some(option.option_id.clone()), None, None))
    }

    /// Moves to the options of the permission that is shown, and from there to the next card. The arrows of a question need no such key.
    pub(crate) fn tab(&mut self, view: &View, about: &About<'_>, typing: Typing) {
        let Some(card) = self.current(view) else { return };
        let has_options =
            matches!(&card.asks, Asks::Permission(permission) if !Choices::of(permission).rows().is_empty());
        let can = has_options && typing.is_empty && about.level >= Level::Approve && !self.is_sent(card);
        if can && self.listed.is_none() {
            self.listed = Some(Listed::first());
        } else {
            self.listed = None;
            self.next(view);
        }
    }

    /// Answers a permission request, with the text below for the agent.
    pub(crate) fn with_message(
        &mut self,
        key: KeyEvent,
        text: String,
        view: &View,
        about: &About<'_>,
        typing: Typing,
    ) -> Option<Action> {
        let card = self.current(view)?;
        let Asks::Permission(permission) = &card.asks else { return None };
        let option = key.code.as_char().and_then(|digit| Choices::of(permission).option(digit));
        let option = option.filter(|_| key.modifiers == KeyModifiers::ALT && self.is_ready(card, about, typing))?;
        let message = Some(text).filter(|text| !text.trim().is_empty());
        Some(self.answer(card, view, Some(option.option_id.clone()), None, message))
    }

    fn answer(
        &mut self,
        card: &Card,
        view: &View,
        option_id: Option<String>,
        answers: Option<BTreeMap<String, Vec<String>>>,
        message: Option<String>,
    ) -> Action {
        let next = view.items().next_back().map_or(0, |item| item.id + 1);
        self.sent.insert(card.request_id.clone(), next);
        self.chosen = None;
        let (request_id, digest) = (card.request_id.clone(), card.digest.clone());
        Action::Answer { request_id, digest, option_id, answers, message }
    }

    /// Closes the list of options, if it is open.
    pub(crate) fn closes_list(&mut self) -> bool {
        self.listed.take().is_some()
    }

    /// Moves through a body that is longer than its place, if it is.
    pub(crate) fn scrolls(&mut self, key: KeyCode) -> bool {
        if self.most_scroll == 0 {
            return false;
        }
        let page = self.rows.saturating_sub(1).max(1);
        let to = match key {
            KeyCode::Up => self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll + 1,
            KeyCode::Char(' ') => self.scroll + page,
            KeyCode::Char('b') | KeyCode::Backspace => self.scroll.saturating_sub(page),
            _ => return false,
        };
        self.scroll = to.min(self.most_scroll);
        true
    }
}

fn is_past(since: Instant, now: Instant, time: Duration) -> bool {
    now.saturating_duration_since(since) >= time
}
