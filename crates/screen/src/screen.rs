//! The screen: what it remembers between frames, and how its parts share the rows.

use std::time::{Duration, Instant};

use ensemble_protocol::transcript::body::{Control, SetMode};
use ensemble_protocol::transcript::bounds;
use ensemble_protocol::transcript::view::{Author, Item, Shown, Taken, View};
use ensemble_protocol::transcript::words::Mode;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};

use crate::about::{About, Level, Look};
use crate::action::Action;
use crate::calling::{Call, Calling};
use crate::cards::{Cards, Typing};
use crate::clean::readable;
use crate::commands::{self, Offer};
use crate::composer::{Composer, MOST_TEXT};
use crate::paint::Paint;
use crate::transcript::Transcript;
use crate::transcript::block::Setting;
use crate::wrap::{columns, fit, plain};
use crate::{help, plan, status};

/// With at least this many rows, the first one has the title.
const ROWS_WITH_HEADER: u16 = 16;
/// The rows of the list of commands.
const MOST_OFFER_ROWS: u16 = 6;
const MOST_NOTICE_ROWS: usize = 3;
/// How long a mode that was asked for is shown.
const LONGEST_WANTED: Duration = Duration::from_secs(5);
/// Below this nothing can be read.
const LEAST: (u16, u16) = (20, 6);

/// The screen of one session.
pub struct Screen {
    pub(crate) paint: Paint,
    pub(crate) width: u16,
    pub(crate) transcript: Transcript,
    pub(crate) cards: Cards,
    pub(crate) composer: Composer,
    pub(crate) last_typed: Option<Instant>,
    pub(crate) unfolded: bool,
    pub(crate) shows_plan: bool,
    /// The first line of the help, while it is shown.
    pub(crate) help: Option<usize>,
    pub(crate) notice: Option<Notice>,
    /// The command that is chosen in the list, and the text that the list was closed for.
    pub(crate) offered: usize,
    pub(crate) closed_offers: Option<String>,
    pub(crate) wanted_mode: Option<Wanted>,
    pub(crate) last_ctrl_c: Option<Instant>,
    pub(crate) last_arrow: Option<Arrow>,
    pub(crate) last_interrupt: Option<Instant>,
    calling: Calling,
    /// The first item when older ones were asked for.
    asked_older: Option<u64>,
    wants_older: bool,
}

/// A mode that was asked for.
pub(crate) struct Wanted {
    /// The mode that was there.
    pub(crate) seen: Mode,
    pub(crate) mode: Mode,
    pub(crate) since: Instant,
    /// The id that the command's item has at least.
    pub(crate) from: u64,
}

/// An arrow up or down.
#[derive(Clone, Copy)]
pub(crate) struct Arrow {
    pub(crate) is_up: bool,
    pub(crate) at: Instant,
    /// It brought back another prompt.
    pub(crate) recalled: bool,
}

/// A line of the caller, or of the screen itself.
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) since: Option<Instant>,
}

impl Screen {
    pub fn new(look: Look) -> Self {
        Self {
            paint: Paint(look),
            width: 80,
            transcript: Transcript::default(),
            cards: Cards::default(),
            composer: Composer::new(),
            last_typed: None,
            unfolded: false,
            shows_plan: false,
            help: None,
            notice: None,
            offered: 0,
            closed_offers: None,
            wanted_mode: None,
            last_ctrl_c: None,
            last_arrow: None,
            last_interrupt: None,
            calling: Calling::default(),
            asked_older: None,
            wants_older: false,
        }
    }

    /// Puts a text into the text field, at most 256 KiB of it.
    pub fn write(&mut self, text: &str) {
        self.composer.set(bounds::beginning(text, MOST_TEXT).0);
    }

    /// The text of the person that is not sent.
    pub fn written(&self) -> String {
        self.composer.written()
    }

    /// Shows a sentence above the text field until the next key.
    pub fn notice(&mut self, text: &str) {
        self.notice = Some(Notice { text: readable(text.trim()), since: None });
    }

    /// An action could not be sent. Its text comes back, and its card can be answered again.
    pub fn not_sent(&mut self, action: Action, why: &str) {
        match action {
            Action::Prompt { text, .. } if self.composer.is_empty() => self.composer.set(&text),
            Action::Answer { request_id, .. } => self.cards.not_sent(&request_id),
            Action::SetMode { .. } => self.wanted_mode = None,
            Action::Interrupt => self.last_interrupt = None,
            _ => {}
        }
        self.notice(why);
    }

    /// What the terminal is to say to a person who looks elsewhere. Asked for after each frame.
    pub fn call(&mut self, view: &View, about: &About<'_>) -> Call {
        self.calling.next(view, about, self.paint)
    }

    /// Whether the person has scrolled to the first item that there is. Once for each first item.
    pub fn wants_older(&mut self) -> bool {
        std::mem::take(&mut self.wants_older)
    }

    pub(crate) fn setting<'a>(&self, about: &'a About<'a>) -> Setting<'a> {
        Setting { paint: self.paint, width: self.width, unfolded: self.unfolded, about }
    }

    pub(crate) fn typing(&self) -> Typing {
        Typing { is_empty: self.composer.is_empty(), last: self.last_typed }
    }

    /// The commands that the text may become.
    pub(crate) fn offers(&self, view: &View, about: &About<'_>) -> Vec<Offer> {
        let text = self.composer.text();
        if self.closed_offers.as_ref() == Some(&text) {
            return Vec::new();
        }
        commands::offers(&text, view.state(), about.level)
    }

    /// Draws the session as it is now.
    pub fn draw(&mut self, frame: &mut Frame<'_>, view: &View, about: &About<'_>) {
        let whole = frame.area();
        // Also where there is no room: what it waits for ends.
        let wanted = self.wanted(view, about);
        if whole.width < LEAST.0 || whole.height < LEAST.1 {
            frame.buffer_mut().set_line(whole.left(), whole.top(), &Line::raw("too small"), whole.width);
            return;
        }
        let area = Rect { x: whole.x + 1, width: whole.width - 2, ..whole };
        self.width = area.width;
        let setting = self.setting(about);
        self.cards.keep_up(view, about);
        let mut rows = Rows { area };
        if area.height >= ROWS_WITH_HEADER {
            let row = rows.take_top(1);
            frame.buffer_mut().set_line(row.x, row.y, &status::header(view, &setting), row.width);
            rows.take_top(1);
        }
        let last = rows.take_bottom(1);
        let hints = self.hints(view, about);
        let line = status::status(view, wanted.as_ref(), hints, &setting);
        frame.buffer_mut().set_line(last.x, last.y, &line, last.width);
        self.draw_composer(frame, &mut rows, about);
        let buffer = frame.buffer_mut();
        let above = rows.take_bottom(1);
        buffer.set_line(above.x, above.y, &status::phase(view, self.transcript.below(view), &setting), above.width);
        if let Some(from) = self.help {
            let all = help::draw(buffer, rows.area, from, about.level, self.paint);
            self.help = Some(from.min(all.saturating_sub(usize::from(rows.area.height))));
            self.cards.hide();
            return;
        }
        self.draw_offers(buffer, &mut rows, view, about);
        self.draw_notice(buffer, &mut rows, about);
        self.draw_cards(buffer, &mut rows, view, &setting);
        if let Some(plan) = view.plan() {
            let most = if self.shows_plan { usize::from(rows.area.height / 2) } else { 1 };
            let most = if rows.area.height < 4 { 0 } else { most };
            let lines = plan::lines(plan, self.shows_plan, most, &setting);
            rows.lines(buffer, lines);
        }
        self.draw_transcript(buffer, rows, view, &setting);
    }

    fn draw_transcript(&mut self, buffer: &mut Buffer, mut rows: Rows, view: &View, setting: &Setting<'_>) {
        if rows.area.height > 6 {
            // Room between the newest line and what stands below.
            rows.take_bottom(1);
        }
        self.transcript.draw(buffer, rows.area, view, setting);
        let first = view.items().next().map(|item| item.id);
        if self.transcript.is_at_top() && first != self.asked_older {
            self.asked_older = first;
            self.wants_older = true;
        }
    }

    fn draw_composer(&mut self, frame: &mut Frame<'_>, rows: &mut Rows, about: &About<'_>) {
        if about.level < Level::Prompt {
            let row = rows.take_bottom(1);
            let owner = self.setting(about).name(about.owner);
            let long = format!("You may read this session. {owner} can let you write here.");
            let text = if columns(&long) <= row.width { long } else { "You may read this session.".to_owned() };
            let line = Line::styled(text, self.paint.dim());
            frame.buffer_mut().set_line(row.x, row.y, &line, row.width);
            return;
        }
        let width = rows.area.width.saturating_sub(2);
        let most = (rows.area.height / 3).max(1);
        let place = rows.take_bottom(self.composer.rows(width).clamp(1, most));
        let mark = Span::styled(self.paint.pick("›", ">"), self.paint.mine());
        let buffer = frame.buffer_mut();
        buffer.set_span(place.x, place.y, &mark, 1);
        let field = Rect { x: place.x + 2, width, ..place };
        let cursor = self.composer.draw(buffer, field);
        frame.set_cursor_position(cursor);
    }

    fn draw_offers(&mut self, buffer: &mut Buffer, rows: &mut Rows, view: &View, about: &About<'_>) {
        let offers = self.offers(view, about);
        self.offered = self.offered.min(offers.len().saturating_sub(1));
        let most = MOST_OFFER_ROWS.min(rows.area.height / 3).max(1);
        let from = (self.offered + 1).saturating_sub(usize::from(most));
        let names = offers.iter().map(|offer| columns(&offer.text)).max().unwrap_or(0).min(rows.area.width / 2);
        let (width, all) = (rows.area.width, offers.len());
        let lines = offers.into_iter().enumerate().skip(from).take(usize::from(most)).map(|(at, offer)| {
            let is_chosen = at == self.offered;
            let style = if is_chosen { self.paint.mine().patch(self.paint.strong()) } else { self.paint.plain() };
            let mark = if is_chosen { self.paint.pick("› ", "> ") } else { "  " };
            let name = fit(&offer.text, names, self.paint.more());
            let space = " ".repeat(usize::from(names.saturating_sub(columns(&name)) + 2));
            let text = fit(&offer.about, width.saturating_sub(names + 4), self.paint.more());
            Line::from(vec![Span::styled(format!("{mark}{name}{space}"), style), Span::styled(text, self.paint.dim())])
        });
        let mut lines: Vec<_> = lines.collect();
        if all > lines.len() && !lines.is_empty() {
            let text = format!("  {} of {all}", self.offered + 1);
            lines.push(Line::styled(text, self.paint.dim()));
        }
        rows.lines(buffer, lines);
    }

    fn draw_notice(&mut self, buffer: &mut Buffer, rows: &mut Rows, about: &About<'_>) {
        let Some(notice) = &mut self.notice else { return };
        notice.since.get_or_insert(about.now);
        let mut lines = plain(&notice.text, self.paint.warning(), rows.area.width);
        lines.truncate(MOST_NOTICE_ROWS);
        rows.lines(buffer, lines);
    }

    fn draw_cards(&mut self, buffer: &mut Buffer, rows: &mut Rows, view: &View, setting: &Setting<'_>) {
        // A long card leaves a quarter of the rows to the transcript.
        let most = rows.area.height - (rows.area.height / 4).min(6);
        let laid = self.cards.lay(view, setting, self.typing(), most);
        if laid.height() > 0 {
            laid.draw(buffer, rows.take_bottom(laid.height()));
        }
    }

    /// When the screen is to be drawn again although nothing happens: a mode that was asked for is shown for a while only.
    pub fn stale_at(&self) -> Option<Instant> {
        self.wanted_mode.as_ref().map(|wanted| wanted.since + LONGEST_WANTED)
    }

    /// The mode that was asked for, while the host has not answered.
    pub(crate) fn wanted(&mut self, view: &View, about: &About<'_>) -> Option<Mode> {
        let wanted = self.wanted_mode.as_ref()?;
        let is_rejected = |item: &Item| {
            let is_mine = matches!(&item.author, Author::Person { key, .. } if *key == about.me.key);
            let is_it = |set: &SetMode| set.mode == wanted.mode;
            is_mine
                && matches!(&item.shown, Shown::Control(Control::SetMode(set), Taken::Rejected { .. }) if is_it(set))
        };
        let is_open = view.state().is_some_and(|state| state.mode == wanted.seen)
            && about.now.saturating_duration_since(wanted.since) < LONGEST_WANTED
            && !view.items().rev().take_while(|item| item.id >= wanted.from).any(is_rejected);
        if is_open {
            return Some(wanted.mode.clone());
        }
        self.wanted_mode = None;
        None
    }

    /// The keys that matter now, from the longest text to the shortest.
    fn hints(&self, view: &View, about: &About<'_>) -> &'static [&'static str] {
        if about.level < Level::Prompt {
            return match self.help {
                Some(_) => &["up, down: scroll  other keys: close", "any key: close"],
                None => &["ctrl-o: unfold  ?: help  q: leave", "?: help  q: leave", "q: leave"],
            };
        }
        let steers = view.state().is_some_and(|state| state.steers);
        match (self.composer.is_empty(), status::is_busy(view)) {
            (true, _) if self.help.is_some() => &["up, down: scroll  other keys: close", "any key: close"],
            (true, _) if about.level < Level::Owner => match self.unfolded {
                true => &["ctrl-o: fold  ?: help", "?: help"],
                false => &["ctrl-o: unfold  ?: help", "?: help"],
            },
            (true, _) if self.unfolded => {
                &["ctrl-o: fold  shift-tab: mode  ?: help", "ctrl-o: fold  ?: help", "?: help"]
            }
            (true, _) => &["ctrl-o: unfold  shift-tab: mode  ?: help", "shift-tab: mode  ?: help", "?: help"],
            (false, _) if self.cards.takes_text(view, about) => &["enter: answer"],
            (false, true) if steers => {
                &["enter: after the turn  ctrl-s: now", "enter: later  ctrl-s: now", "ctrl-s: now"]
            }
            (false, true) => &["enter: after the turn  alt-enter: line", "enter: after the turn", "enter: later"],
            (false, false) => &["enter: send  alt-enter: line", "enter: send"],
        }
    }
}

/// The rows that are still free.
struct Rows {
    area: Rect,
}

impl Rows {
    fn take_top(&mut self, count: u16) -> Rect {
        let count = count.min(self.area.height);
        let taken = Rect { height: count, ..self.area };
        self.area.y += count;
        self.area.height -= count;
        taken
    }

    fn take_bottom(&mut self, count: u16) -> Rect {
        let count = count.min(self.area.height);
        self.area.height -= count;
        Rect { y: self.area.bottom(), height: count, ..self.area }
    }

    /// Puts lines at the bottom.
    fn lines(&mut self, buffer: &mut Buffer, lines: Vec<Line<'static>>) {
        let place = self.take_bottom(u16::try_from(lines.len()).unwrap_or(u16::MAX));
        for (line, row) in lines.iter().zip(place.top()..place.bottom()) {
            buffer.set_line(place.left(), row, line, place.width);
        }
    }
}
