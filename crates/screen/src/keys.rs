//! Keys: which part of the screen each is for, and what the person wants with it.

use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ensemble_protocol::transcript::body::TakeBack;
use ensemble_protocol::transcript::view::{Author, Shown, View};
use ensemble_protocol::transcript::words::{Mode, Phase};
use ensemble_types::runs::Provider;

use crate::about::{About, Level};
use crate::action::Action;
use crate::cards::Pressed;
use crate::commands::{Command, Parsed, parse};
use crate::composer::Typed;
use crate::last;
use crate::screen::{Arrow, Screen, Wanted};
use crate::status::{is_busy, still_runs};

/// Two presses of ctrl-c within this time leave.
const TWICE: Duration = Duration::from_secs(1);
/// Arrows that come faster than this are from the mouse wheel; a key that is held repeats 30 times a second.
const WHEEL: Duration = Duration::from_millis(10);
/// The least time that a notice stays.
const NOTICE: Duration = Duration::from_secs(1);
/// The own prompts that can be brought back.
const MOST_HISTORY: usize = 200;

impl Screen {
    /// Takes an event of the terminal. What the person wants, if it says so.
    pub fn event(&mut self, event: Event, view: &View, about: &About<'_>) -> Option<Action> {
        self.cards.keep_up(view, about);
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                self.release(about);
                self.key(key, view, about)
            }
            Event::Paste(text) if about.level >= Level::Prompt => {
                self.release(about);
                let typed = self.composer.paste(&text);
                self.typed(typed, about);
                None
            }
            _ => None,
        }
    }

    /// When [`Self::due`] is to be asked, unless there is a key before.
    pub fn due_at(&self) -> Option<std::time::Instant> {
        self.cards.due_at()
    }

    /// What the person wants with a digit that no other key has followed. A key that waits is an event before this is asked.
    pub fn due(&mut self, view: &View, about: &About<'_>) -> Option<Action> {
        self.cards.keep_up(view, about);
        match self.cards.due(view, about, self.typing())? {
            (_, Pressed::Wants(action)) => return Some(action),
            (_, Pressed::Done) => {}
            (digit, Pressed::Not) => self.digit(digit, about),
        }
        None
    }

    /// A digit that another key follows is text.
    fn release(&mut self, about: &About<'_>) {
        if let Some(digit) = self.cards.release() {
            self.digit(digit, about);
        }
    }

    fn digit(&mut self, digit: KeyEvent, about: &About<'_>) {
        let typed = self.composer.key(digit);
        self.typed(typed, about);
    }

    fn key(&mut self, key: KeyEvent, view: &View, about: &About<'_>) -> Option<Action> {
        let is_old = |since: std::time::Instant| about.now.saturating_duration_since(since) >= NOTICE;
        if self.notice.as_ref().is_some_and(|notice| notice.since.is_some_and(is_old)) {
            self.notice = None;
        }
        if let Some(from) = self.help {
            self.help = match key.code {
                KeyCode::Up => Some(from.saturating_sub(1)),
                KeyCode::Down => Some(from + 1),
                _ => None,
            };
            return None;
        }
        let is_empty = self.composer.is_empty();
        let setting = self.setting(about);
        let has_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if has_ctrl => return self.ctrl_c(view, about),
            KeyCode::Char('d') if has_ctrl && is_empty => return Some(Action::Leave),
            KeyCode::Char('d') if has_ctrl && about.level >= Level::Prompt => match self.composer.key(key) {
                Typed::Nothing => self.notice("Ctrl-d leaves when the field is empty. Ctrl-c empties it."),
                typed => self.typed(typed, about),
            },
            KeyCode::Char('x') if has_ctrl && about.level >= Level::Prompt => return self.take_back(view, about),
            KeyCode::Char('o') if has_ctrl => self.unfolded = !self.unfolded,
            KeyCode::Char('t') if has_ctrl => self.shows_plan = !self.shows_plan,
            KeyCode::PageUp => self.transcript.page(-1, view, &setting),
            KeyCode::PageDown => self.transcript.page(1, view, &setting),
            KeyCode::End if has_ctrl => self.transcript.follow(),
            KeyCode::Esc => return self.escape(view, about),
            KeyCode::BackTab => return self.next_mode(view, about),
            KeyCode::Tab => self.tab(view, about),
            KeyCode::Char('q') if about.level < Level::Prompt => return Some(Action::Leave),
            KeyCode::Char('?') if is_empty => self.help = Some(0),
            _ => return self.text_key(key, view, about),
        }
        None
    }

    /// A key for the card or for the text.
    fn text_key(&mut self, key: KeyEvent, view: &View, about: &About<'_>) -> Option<Action> {
        if self.composer.is_empty() {
            match self.cards.key(key, view, about, self.typing()) {
                Pressed::Not => {}
                Pressed::Done => return None,
                Pressed::Wants(action) => return Some(action),
            }
        }
        if key.modifiers == KeyModifiers::ALT && matches!(key.code, KeyCode::Up | KeyCode::Down) {
            self.cards.scrolls(key.code);
            return None;
        }
        if about.level < Level::Prompt {
            return None;
        }
        let answer = self.cards.with_message(key, self.composer.text(), view, about, self.typing());
        if answer.is_some() {
            self.composer.take();
            return answer;
        }
        if key.code == KeyCode::Enter && key.modifiers.is_empty() {
            return self.enter(false, view, about);
        }
        if key.code == KeyCode::Char('s') && key.modifiers == KeyModifiers::CONTROL {
            return self.enter(true, view, about);
        }
        let offers = self.offers(view, about).len();
        match key.code {
            KeyCode::Up if offers > 1 => self.offered = self.offered.checked_sub(1).unwrap_or(offers - 1),
            KeyCode::Down if offers > 1 => self.offered = (self.offered + 1) % offers,
            KeyCode::Up | KeyCode::Down if key.modifiers.is_empty() => self.arrow(key, view, about),
            _ => {
                let typed = self.composer.key(key);
                self.typed(typed, about);
            }
        }
        None
    }

    /// An arrow key, or the mouse wheel, for which most terminals send several arrows at once on the alternate screen. The first
    /// one looks like a key, so its effect is undone.
    fn arrow(&mut self, key: KeyEvent, view: &View, about: &About<'_>) {
        let is_up = key.code == KeyCode::Up;
        let before =
            self.last_arrow.filter(|last| last.is_up == is_up && about.now.saturating_duration_since(last.at) < WHEEL);
        let mut recalled = false;
        if let Some(before) = before {
            let prompts = if before.recalled { own_prompts(view, about) } else { Vec::new() };
            match (before.recalled, is_up) {
                (true, true) => drop(self.composer.later(&prompts)),
                (true, false) => drop(self.composer.earlier(&prompts)),
                (false, _) => {}
            }
            let setting = self.setting(about);
            self.transcript.scroll(if is_up { -1 } else { 1 }, view, &setting);
        } else {
            recalled = match self.composer.key(key) {
                Typed::Earlier => self.composer.earlier(&own_prompts(view, about)),
                Typed::Later => self.composer.later(&own_prompts(view, about)),
                _ => false,
            };
        }
        self.last_arrow = Some(Arrow { is_up, at: about.now, recalled });
    }

    fn typed(&mut self, typed: Typed, about: &About<'_>) {
        match typed {
            Typed::Nothing | Typed::Moved | Typed::Earlier | Typed::Later => {}
            Typed::Changed => {
                self.last_typed = Some(about.now);
                self.cards.typed(about.now);
                self.offered = 0;
                self.closed_offers = None;
            }
            Typed::Full => self.notice("This is too long for a prompt. Put it into a file and name the file."),
        }
    }

    /// Sends what is written.
    fn enter(&mut self, now: bool, view: &View, about: &About<'_>) -> Option<Action> {
        let text = self.composer.text();
        if text.trim().is_empty() {
            return None;
        }
        let offers = self.offers(view, about);
        let is_one = offers.iter().any(|offer| offer.text.trim_end() == text.trim_end());
        if let Some(offer) = offers.get(self.offered).filter(|_| !is_one) {
            self.composer.set(&offer.text);
            return None;
        }
        match parse(text.trim_end(), view.state()) {
            Parsed::Wrong(why) => {
                self.notice(&why);
                None
            }
            Parsed::Command(command) => self.command(command, view, about),
            Parsed::Prompt => self.prompt(text.trim_end(), now, view, about),
        }
    }

    fn prompt(&mut self, text: &str, now: bool, view: &View, about: &About<'_>) -> Option<Action> {
        if !now && self.cards.takes_text(view, about) {
            self.composer.take();
            return self.cards.text(text.to_owned(), view);
        }
        let state = view.state();
        if state.is_some_and(|state| state.phase == Phase::Ended) {
            match about.level {
                Level::Owner => self.notice("The session has ended. /resume starts the agent again."),
                _ => self.may_not(Level::Owner, "start the agent of this session again: it has ended", about),
            }
            return None;
        }
        if now && is_busy(view) && !state.is_some_and(|state| state.steers) {
            self.notice("This agent takes a prompt only after its turn. Enter sends it for then.");
            return None;
        }
        self.composer.take();
        self.transcript.follow();
        Some(Action::Prompt { text: text.to_owned(), now: now && is_busy(view) })
    }

    fn command(&mut self, command: Command, view: &View, about: &About<'_>) -> Option<Action> {
        let (needs, what) = match &command {
            Command::Mode(_) => (Level::Owner, "change the mode"),
            Command::Stop => (Level::Owner, "end the agent"),
            Command::Resume => (Level::Owner, "start the agent again"),
            Command::Model(_) => (Level::Approve, "choose the model"),
            Command::Insert => (Level::Prompt, "write here"),
            Command::Leave | Command::Help => (Level::Read, ""),
        };
        if about.level < needs {
            self.may_not(needs, what, about);
            return None;
        }
        self.composer.take();
        match command {
            Command::Mode(mode) => self.set_mode(mode, view, about),
            Command::Model(model) => Some(Action::SetModel(model)),
            Command::Stop => Some(Action::Stop),
            Command::Resume => Some(Action::Resume),
            Command::Insert => {
                match last::messages(view) {
                    Some(text) => self.composer.set(&text),
                    None => self.notice("Nothing was said yet."),
                }
                None
            }
            Command::Leave => Some(Action::Leave),
            Command::Help => {
                self.help = Some(0);
                None
            }
        }
    }

    /// Says who may do what this person may not.
    fn may_not(&mut self, needs: Level, what: &str, about: &About<'_>) {
        let owner = self.setting(about).name(about.owner);
        self.notice(&match needs {
            Level::Owner => format!("Only {owner} may {what}."),
            _ => format!("{owner} has not allowed you to {what}."),
        });
    }

    fn tab(&mut self, view: &View, about: &About<'_>) {
        match self.offers(view, about).get(self.offered) {
            Some(offer) => self.composer.set(&offer.text),
            None => self.cards.tab(view, about, self.typing()),
        }
    }

    /// The next of the modes that are not dangerous.
    fn next_mode(&mut self, view: &View, about: &About<'_>) -> Option<Action> {
        if about.level < Level::Owner {
            self.may_not(Level::Owner, "change the mode", about);
            return None;
        }
        if self.wanted(view, about).is_some() {
            return None;
        }
        let state = view.state()?;
        let can = |mode: &Mode| state.modes.is_empty() || state.modes.iter().any(|known| known.id == mode.as_str());
        let modes = [Mode::Ask, Mode::Edit, Mode::Plan];
        let at = modes.iter().position(|mode| *mode == state.mode);
        let from = at.map_or(0, |at| at + 1);
        let next = modes.iter().cycle().skip(from).take(modes.len()).find(|mode| can(mode) && **mode != state.mode)?;
        self.set_mode(next.clone(), view, about)
    }

    fn set_mode(&mut self, mode: Mode, view: &View, about: &About<'_>) -> Option<Action> {
        let seen = view.state()?.mode.clone();
        if seen == mode {
            return None;
        }
        let from = view.items().next_back().map_or(0, |item| item.id + 1);
        self.wanted_mode = Some(Wanted { seen: seen.clone(), mode: mode.clone(), since: about.now, from });
        Some(Action::SetMode { mode, seen })
    }

    fn escape(&mut self, view: &View, about: &About<'_>) -> Option<Action> {
        if self.cards.closes_list() {
            return None;
        }
        if !self.offers(view, about).is_empty() {
            self.closed_offers = Some(self.composer.text());
            return None;
        }
        if is_busy(view) {
            return self.interrupt(about);
        }
        if still_runs(view) && self.transcript.below(view).is_none() {
            return self.interrupt(about);
        }
        self.transcript.follow();
        None
    }

    fn interrupt(&mut self, about: &About<'_>) -> Option<Action> {
        if about.level < Level::Prompt {
            return None;
        }
        let is_new = |since: std::time::Instant| about.now.saturating_duration_since(since) < TWICE;
        if self.last_interrupt.is_some_and(is_new) {
            return None;
        }
        self.last_interrupt = Some(about.now);
        Some(Action::Interrupt)
    }

    /// The newest prompt of this person that waits. Its text is the first of the earlier prompts then.
    fn take_back(&mut self, view: &View, about: &About<'_>) -> Option<Action> {
        if !view.state().is_some_and(|state| state.does.iter().any(|does| does == "take_back")) {
            self.notice("The program on the machine cannot take prompts back yet. Update it there.");
            return None;
        }
        let newest = view.waiting().rev().find_map(|item| match &item.author {
            Author::Person { user, key, .. } if *user == about.me.user => {
                Some(TakeBack { local_id: item.local_id.clone(), key: key.clone() })
            }
            _ => None,
        });
        if newest.is_none() {
            self.notice("No prompt of yours waits.");
        }
        newest.map(Action::TakeBack)
    }

    fn ctrl_c(&mut self, view: &View, about: &About<'_>) -> Option<Action> {
        if !self.composer.is_empty() {
            self.composer.take();
            return None;
        }
        let is_second = self.last_ctrl_c.is_some_and(|last| about.now.saturating_duration_since(last) < TWICE);
        if is_second {
            return Some(Action::Leave);
        }
        self.last_ctrl_c = Some(about.now);
        let action = if is_busy(view) { self.interrupt(about) } else { None };
        if action.is_none() {
            let is_demo = view.state().is_some_and(|state| state.agent == Provider::DEMO);
            let what = if is_demo { "This deletes the demo." } else { "The session continues." };
            self.notice(&format!("Ctrl-c again leaves. {what}"));
        }
        action
    }
}

/// The prompts of this person, the newest first.
fn own_prompts(view: &View, about: &About<'_>) -> Vec<String> {
    let mut prompts: Vec<String> = Vec::new();
    for item in view.items().rev() {
        let Author::Person { user, .. } = &item.author else { continue };
        let Shown::Prompt(prompt, _) = &item.shown else { continue };
        if *user == about.me.user && prompts.last() != Some(&prompt.text) {
            prompts.push(prompt.text.clone());
        }
        if prompts.len() == MOST_HISTORY {
            break;
        }
    }
    prompts
}
