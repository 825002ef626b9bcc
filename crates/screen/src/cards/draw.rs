//! How a card looks: a rule, what is asked in full, and under it each option with its key and its own name.

use ensemble_protocol::transcript::Choices;
use ensemble_protocol::transcript::body::{Permission, PermissionOption, QuestionItem};
use ensemble_protocol::transcript::view::{Asks, Card, View};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};

use super::permission::is_for_once;
use super::{Cards, Choosing, Listed, MOST_KEYS, Typing};
use crate::about::Level;
use crate::clean::{line, strict};
use crate::rule::rule;
use crate::transcript::block::Setting;
use crate::transcript::tool::content_lines;
use crate::wrap::{Break, wrap};

/// The options that are listed.
const MOST_OPTIONS: usize = 20;
/// The characters of an option's name.
const MOST_NAME: usize = 500;

/// The lines of what is asked, kept while the card is shown.
pub(super) struct Body {
    digest: String,
    width: u16,
    lines: Vec<Line<'static>>,
}

/// A card that is laid out for the rows that it gets.
pub(crate) struct Laid {
    lines: Vec<Line<'static>>,
}

impl Laid {
    pub(crate) fn height(&self) -> u16 {
        u16::try_from(self.lines.len()).unwrap_or(u16::MAX)
    }

    pub(crate) fn draw(&self, buffer: &mut Buffer, area: Rect) {
        for (line, row) in self.lines.iter().zip(area.top()..area.bottom()) {
            buffer.set_line(area.left(), row, line, area.width);
        }
    }
}

impl Cards {
    /// Lays out the card that is shown, in at most `most` rows.
    pub(crate) fn lay(&mut self, view: &View, setting: &Setting<'_>, typing: Typing, most: u16) -> Laid {
        let card = self.current(view);
        self.appears(card, typing, setting.about.now);
        let Some(card) = card else { return Laid { lines: Vec::new() } };
        let mut body = self.body_lines(card, setting);
        let (mut below, mut focus) = match (&card.asks, &self.choosing) {
            (Asks::Permission(permission), _) => permission_options(permission, self.listed.as_ref(), setting),
            (Asks::Question(_), Some(choosing)) => question_options(choosing, !self.has_no_text, setting),
            (Asks::Question(_), None) => (Vec::new(), None),
        };
        below.extend(self.hint(card, setting, typing));
        let most = usize::from(most.max(3));
        // Under a rule there are at least two lines of the body with a line that says how many there are.
        let is_below = below.len() + 4 > most && below.len() + body.len() + 1 > most;
        if is_below {
            focus = focus.map(|row| row + body.len());
            body.append(&mut below);
        } else {
            focus = None;
        }
        let mut lines = vec![self.title(card, view, setting)];
        let keys = match (focus.is_some(), typing.is_empty) {
            (true, _) => "",
            (false, true) => setting.paint.pick("  ↑ ↓ space", "  up down space"),
            (false, false) => setting.paint.pick("  alt-↑ alt-↓", "  alt-up alt-down"),
        };
        self.window(&mut lines, body, (focus, keys), most - 1 - below.len(), setting);
        // Tab moves to the first options of a permission before the end of the card was on the screen.
        let has_moved_on = focus.is_some() && self.listed.as_ref().is_none_or(|listed| listed.reaches_further);
        self.has_shown_options |= !is_below || has_moved_on || self.scroll == self.most_scroll;
        lines.append(&mut below);
        Laid { lines }
    }

    /// Adds the part of the body that is scrolled to.
    fn window(
        &mut self,
        lines: &mut Vec<Line<'static>>,
        body: Vec<Line<'static>>,
        (focus, keys): (Option<usize>, &str),
        rows: usize,
        setting: &Setting<'_>,
    ) {
        if body.len() <= rows {
            (self.scroll, self.most_scroll, self.rows) = (0, 0, rows);
            lines.extend(body);
            return;
        }
        let rows = rows.saturating_sub(1).max(1);
        self.rows = rows;
        self.most_scroll = body.len() - rows;
        if let Some(focus) = focus {
            self.scroll = self.scroll.clamp((focus + 1).saturating_sub(rows), focus);
        }
        self.scroll = self.scroll.min(self.most_scroll);
        let (all, last) = (body.len(), self.scroll + rows);
        lines.extend(body.into_iter().skip(self.scroll).take(rows));
        let paint = setting.paint;
        let text = format!("  {} {} to {last} of {all} lines{keys}", paint.more(), self.scroll + 1);
        lines.push(Line::styled(text, if last < all { paint.asks() } else { paint.dim() }));
    }

    fn title(&self, card: &Card, view: &View, setting: &Setting<'_>) -> Line<'static> {
        let kind = match &card.asks {
            Asks::Permission(_) => "permission",
            Asks::Question(_) => "question",
        };
        let count = view.open().len();
        let place = view.open().position(|one| one.request_id == card.request_id).unwrap_or(0) + 1;
        let left = if count > 1 { format!("{kind} {place} of {count}") } else { kind.to_owned() };
        let lists = matches!(card.asks, Asks::Permission(_)) && setting.about.level >= Level::Approve;
        let right = match (lists && self.listed.is_none() && !self.is_sent(card), count > 1) {
            (true, _) => "tab: choose",
            (false, true) => "tab: the next",
            (false, false) => "",
        };
        rule(&left, setting.paint.asks(), right, setting.width, setting.paint)
    }

    fn body_lines(&mut self, card: &Card, setting: &Setting<'_>) -> Vec<Line<'static>> {
        let Asks::Permission(permission) = &card.asks else {
            return self.choosing.as_ref().map_or_else(Vec::new, |choosing| question_lines(choosing, setting));
        };
        if let Some(kept) = &self.body
            && (&kept.digest, kept.width) == (&card.digest, setting.width)
        {
            return kept.lines.clone();
        }
        let lines = permission_lines(permission, setting);
        self.body = Some(Body { digest: card.digest.clone(), width: setting.width, lines: lines.clone() });
        lines
    }

    /// What is in the way of answering, if anything is.
    fn hint(&self, card: &Card, setting: &Setting<'_>, typing: Typing) -> Option<Line<'static>> {
        let paint = setting.paint;
        if setting.about.level < Level::Approve {
            let text = format!("  {} answers this, not you.", setting.name(setting.about.owner));
            return Some(Line::styled(text, paint.warning()));
        }
        if self.is_sent(card) {
            return Some(Line::styled("  Your answer is sent. The machine has not confirmed it yet.", paint.dim()));
        }
        let text = match &card.asks {
            Asks::Permission(_) if !typing.is_empty => "  alt and the number answers with your text",
            Asks::Question(_) if !typing.is_empty && self.shown.as_ref().is_some_and(|one| one.is_typed_before) => {
                "  Your text is a prompt. Send it or empty it to answer."
            }
            Asks::Question(_) if !typing.is_empty => "  enter answers with your text",
            _ => return None,
        };
        Some(Line::styled(text, paint.warning()))
    }
}

fn permission_lines(permission: &Permission, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let nothing = Span::raw("");
    let title = line(&permission.title, 2_000);
    // A title that is a field of the request says nothing more: what is signed is the request.
    let detail = strict(permission.detail.trim_end());
    let is_said = permission.content.is_empty() && detail.split('\n').any(|part| value(part) == title);
    let mut lines = if is_said {
        Vec::new()
    } else {
        wrap(&[Span::styled(title, paint.strong())], setting.width, Break::Words, &nothing, &nothing)
    };
    for content in &permission.content {
        lines.extend(content_lines(content, setting, "  "));
    }
    if !permission.content.is_empty() {
        lines.push(Line::styled("The whole request:", paint.dim()));
    }
    let indent = Span::raw("  ");
    for part in detail.split('\n') {
        lines.extend(wrap(&[Span::raw(part)], setting.width, Break::Anywhere, &indent, &indent));
    }
    lines
}

/// What stands after the name of a field, or the whole line.
fn value(line: &str) -> &str {
    line.split_once(": ").filter(|(name, _)| !name.contains(' ')).map_or(line, |(_, value)| value)
}

/// The options of a permission, and the line with the mark in their list.
fn permission_options(
    permission: &Permission,
    listed: Option<&Listed>,
    setting: &Setting<'_>,
) -> (Vec<Line<'static>>, Option<usize>) {
    let paint = setting.paint;
    let (mut lines, mut focus) = (vec![Line::default()], None);
    if let Some(missing) = permission.cut {
        let text = format!("{missing} bytes of this request are missing. It can only be refused here.");
        let mark = Span::styled("! ", paint.asks());
        lines.extend(wrap(&[Span::styled(text, paint.asks())], setting.width, Break::Words, &mark, &Span::raw("  ")));
    }
    let has_keys = setting.about.level >= Level::Approve;
    let choices = Choices::of(permission);
    let (rows, reaches_further) = (choices.rows(), listed.is_some_and(|listed| listed.reaches_further));
    let is_theirs = |option: &&PermissionOption| setting.about.level != Level::Approve || is_for_once(option);
    let mut add = |lines: &mut Vec<Line<'static>>, is_marked: bool, key: char, name: &str, is_theirs: bool| {
        if is_marked {
            focus = Some(lines.len());
        }
        let mark = if is_marked { paint.pick("›", ">") } else { " " };
        let before = Span::styled(format!("{mark} {key}  "), paint.asks());
        lines.extend(wrap(
            &[Span::styled(line(name, MOST_NAME), if is_theirs { paint.plain() } else { paint.dim() })],
            setting.width,
            Break::Words,
            &before,
            &Span::raw("     "),
        ));
    };
    for (at, digit) in rows.iter().enumerate() {
        let Some(option) = choices.option(*digit) else { continue };
        let is_marked = !reaches_further && listed.is_some_and(|listed| listed.mark == at);
        add(&mut lines, is_marked, if has_keys { *digit } else { ' ' }, &option.name, true);
    }
    if has_keys && !reaches_further {
        if rows.contains(&'4') {
            let is_marked = listed.is_some_and(|listed| listed.mark + 1 == rows.len());
            add(&mut lines, is_marked, '4', "What reaches further than this request", true);
        }
    } else {
        for (at, option) in choices.further.iter().take(MOST_OPTIONS).enumerate() {
            add(&mut lines, listed.is_some_and(|listed| listed.mark == at), ' ', &option.name, is_theirs(option));
        }
        if !choices.further.iter().all(is_theirs) {
            let text =
                format!("{} is the only one who may choose the grey options.", setting.name(setting.about.owner));
            let indent = Span::raw("     ");
            lines.extend(wrap(&[Span::styled(text, paint.warning())], setting.width, Break::Words, &indent, &indent));
        }
    }
    if let Some(listed) = listed {
        let text = if listed.is_confirmed {
            Span::styled("It counts for more than this request. Enter again chooses it, esc does not.", paint.warning())
        } else {
            Span::styled("up, down and enter choose, esc closes", paint.dim())
        };
        let indent = Span::raw("  ");
        lines.extend(wrap(&[text], setting.width, Break::Words, &indent, &indent));
        if !listed.reaches_further && listed.mark + 1 == rows.len() {
            // The end of the card is shown with its last option.
            focus = Some(lines.len() - 1);
        }
    }
    if rows.is_empty() {
        lines.push(Line::styled("  It has no option to choose from here.", paint.warning()));
    }
    (lines, focus)
}

fn question_lines(choosing: &Choosing, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let Some(question) = choosing.question() else { return Vec::new() };
    let paint = setting.paint;
    let nothing = Span::raw("");
    let mut head = Vec::new();
    if choosing.count() > 1 {
        let text = format!("{} of {}{}", choosing.at + 1, choosing.count(), paint.dot());
        head.push(Span::styled(text, paint.dim()));
    }
    if let Some(header) = &question.header {
        head.push(Span::styled(line(header, 80), paint.dim()));
    }
    let mut lines = if head.is_empty() { Vec::new() } else { vec![Line::from(head)] };
    for part in strict(question.text.trim_end()).split('\n') {
        lines.extend(wrap(&[Span::styled(part, paint.strong())], setting.width, Break::Words, &nothing, &nothing));
    }
    lines
}

/// The options of the question that is shown, and the line with the mark.
fn question_options(choosing: &Choosing, has_text: bool, setting: &Setting<'_>) -> (Vec<Line<'static>>, Option<usize>) {
    let Some(question) = choosing.question() else { return (Vec::new(), None) };
    let (paint, mut lines, mut focus) = (setting.paint, vec![Line::default()], None);
    let options = question.options.as_deref().unwrap_or_default();
    let has_keys = setting.about.level >= Level::Approve;
    for (at, option) in options.iter().take(MOST_OPTIONS).enumerate() {
        let is_marked = at == choosing.mark && has_keys;
        let mark = if is_marked { paint.pick("›", ">") } else { " " };
        let number = if at < MOST_KEYS && has_keys { (at + 1).to_string() } else { " ".to_owned() };
        let chosen = match (question.multiple, choosing.is_chosen(at)) {
            (true, true) => "[x] ",
            (true, false) => "[ ] ",
            (false, true) => "* ",
            (false, false) => "",
        };
        let first = Span::styled(format!("{mark} {number}  {chosen}"), paint.asks());
        let rest = Span::raw(" ".repeat(5 + chosen.len()));
        let name = Span::styled(line(&option.label, MOST_NAME), if is_marked { paint.strong() } else { paint.plain() });
        let about = option.description.as_deref().map(|text| format!("  {}", line(text, MOST_NAME)));
        let about = Span::styled(about.unwrap_or_default(), paint.dim());
        if is_marked {
            focus = Some(lines.len());
        }
        lines.extend(wrap(&[name, about], setting.width, Break::Words, &first, &rest));
    }
    if has_keys {
        let indent = Span::raw("  ");
        let keys = Span::styled(keys(question, choosing.count(), has_text), paint.dim());
        lines.extend(wrap(&[keys], setting.width, Break::Words, &indent, &indent));
    }
    (lines, focus)
}

fn keys(question: &QuestionItem, count: usize, has_text: bool) -> String {
    let has_options = question.options.as_ref().is_some_and(|options| !options.is_empty());
    let choose = match (has_options, question.multiple, has_text) {
        (false, _, true) => "type an answer",
        (false, _, false) => "`ensemble attach` takes a text for it",
        (true, false, true) => "number or enter, or type an answer",
        (true, false, false) => "number or enter",
        (true, true, _) => "number or space, then enter",
    };
    let others = if count > 1 { ", left and right: the others" } else { "" };
    format!("{choose}; 0: no answer{others}")
}
