//! How a conversation looks: its head, the words, and from below the keys, a notice, the request, and the message that is shown.

use ensemble_protocol::transcript::view::View;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};

use super::{Held, NOTHING_TYPED, Talk, Talking};
use crate::about::{About, Connection};
use crate::clean::{line, readable, strict};
use crate::rule::rule;
use crate::transcript::block::Setting;
use crate::wrap::{Break, fit, plain, wrap};

/// Below this nothing can be read.
const LEAST: (u16, u16) = (20, 6);
const MOST_NOTICE_ROWS: usize = 3;
/// The most rows of a message that is about to be sent. The session has it in full.
const MOST_HELD_ROWS: usize = 8;
const MOST_CALLS: usize = 3;

impl Talk {
    /// Draws the conversation as it is now.
    pub fn draw(&mut self, frame: &mut Frame<'_>, view: &View, about: &About<'_>, talking: &Talking<'_>) {
        let whole = frame.area();
        let buffer = frame.buffer_mut();
        if whole.width < LEAST.0 || whole.height < LEAST.1 {
            buffer.set_line(whole.left(), whole.top(), &Line::raw("too small"), whole.width);
            return;
        }
        let mut area = Rect { x: whole.x + 1, width: whole.width - 2, ..whole };
        let width = area.width;
        let setting = Setting { paint: self.paint, width, unfolded: false, about };
        self.cards.keep_up(view, about);
        top(buffer, &mut area, vec![self.head(talking, &setting)]);
        bottom(buffer, &mut area, vec![self.keys(talking, width)]);
        // Before all else: a card that takes keys must be seen.
        let most = area.height.saturating_sub(area.height / 4).max(3);
        let card = self.cards.lay(view, &setting, NOTHING_TYPED, most);
        let height = card.height().min(area.height);
        area.height -= height;
        card.draw(buffer, Rect { y: area.bottom(), height, ..area });
        bottom(buffer, &mut area, self.notice(talking, about, width));
        bottom(buffer, &mut area, self.held(talking, &setting));
        bottom(buffer, &mut area, self.calls(talking, width));
        self.words(buffer, area, talking);
    }

    fn head(&self, talking: &Talking<'_>, setting: &Setting<'_>) -> Line<'static> {
        let paint = self.paint;
        let me = match (talking.is_muted, talking.i_speak, talking.plays_file) {
            (true, ..) => ("you are muted", paint.asks()),
            (_, true, _) => ("you speak", paint.mine()),
            (_, _, true) => ("the file is played", paint.plain()),
            _ => ("your microphone is on", paint.plain()),
        };
        let agent = match (talking.agent, talking.agent_speaks) {
            (None, _) => ("no voice agent is here yet", paint.warning()),
            (_, true) | (Some("speaking"), _) => ("the voice speaks", paint.busy()),
            (Some("thinking"), _) => ("the voice thinks", paint.plain()),
            (Some("initializing"), _) => ("the voice comes", paint.plain()),
            _ => ("the voice listens", paint.plain()),
        };
        let mut spans = vec![Span::styled(line(setting.about.title, 60), paint.strong())];
        let mut add = |(text, style): (&'static str, Style)| {
            spans.push(Span::styled(paint.dot(), paint.dim()));
            spans.push(Span::styled(text, style));
        };
        if talking.is_connected {
            add(me);
            add(agent);
        } else {
            add(("connecting", paint.warning()));
        }
        Line::from(spans)
    }

    fn keys(&self, talking: &Talking<'_>, width: u16) -> Line<'static> {
        let mute = if talking.is_muted { "m: unmute" } else { "m: mute" };
        let news = if talking.tells_news { "n: tell no news" } else { "n: tell news" };
        let undo = if talking.held.is_some_and(|held| held.seconds.is_some()) { "u: undo  " } else { "" };
        let text = format!("{undo}{mute}  {news}  q: end");
        Line::styled(fit(&text, width, self.paint.more()), self.paint.dim())
    }

    fn notice(&self, talking: &Talking<'_>, about: &About<'_>, width: u16) -> Vec<Line<'static>> {
        let away = match about.connection {
            Connection::Online => None,
            Connection::Connecting => Some("The server is away. The conversation ends if it does not come back."),
            Connection::MachineAway => Some("The session's machine is away. It does what you send when it is back."),
            Connection::AgentStopped => {
                Some("The session's machine cannot write to its disk. It does what you send when it can.")
            }
            Connection::HeldBack => Some(about.connection.words()),
            Connection::CannotWrite => {
                Some("The session's machine cannot send what the agent does. `ensemble sessions` says what it needs.")
            }
        };
        let mut lines = Vec::new();
        for text in away.into_iter().chain(talking.notice) {
            lines.extend(plain(&readable(text.trim()), self.paint.warning(), width));
        }
        lines.truncate(MOST_NOTICE_ROWS);
        lines
    }

    fn held(&self, talking: &Talking<'_>, setting: &Setting<'_>) -> Vec<Line<'static>> {
        let Some(Held { text, seconds }) = talking.held else { return Vec::new() };
        let paint = self.paint;
        let title = match seconds {
            Some(seconds) => format!("is sent in your name in {seconds} s"),
            None => "is being sent".to_owned(),
        };
        let right = if seconds.is_some() { "u: undo" } else { "" };
        let mut lines = vec![rule(&title, paint.asks(), right, setting.width, paint)];
        let bar = Span::styled(paint.bar(), paint.mine());
        let text = strict(text);
        let body: Vec<Line<'static>> = text
            .split('\n')
            .flat_map(|part| wrap(&[Span::raw(part)], setting.width, Break::Words, &bar, &bar))
            .collect();
        let missing = body.len().saturating_sub(MOST_HELD_ROWS);
        lines.extend(body.into_iter().take(MOST_HELD_ROWS));
        if missing > 0 {
            lines.push(Line::styled(format!("  {} {missing} more lines", paint.more()), paint.dim()));
        }
        lines
    }

    fn calls(&self, talking: &Talking<'_>, width: u16) -> Vec<Line<'static>> {
        let skipped = talking.calls.len().saturating_sub(MOST_CALLS);
        let newest = talking.calls.iter().skip(skipped);
        newest.map(|call| Line::styled(fit(&line(call, 300), width, self.paint.more()), self.paint.dim())).collect()
    }

    /// The newest words, from below.
    fn words(&self, buffer: &mut Buffer, area: Rect, talking: &Talking<'_>) {
        let paint = self.paint;
        let mut lines: Vec<Line<'static>> = Vec::new();
        for words in talking.words.iter().rev() {
            let (who, style) = if words.is_mine { ("You    ", paint.mine()) } else { ("Voice  ", paint.strong()) };
            let text = readable(words.text).replace('\n', " ");
            let first = Span::styled(who, style);
            let mut block = wrap(&[Span::raw(text)], area.width, Break::Words, &first, &Span::raw("       "));
            block.append(&mut lines);
            lines = block;
            if lines.len() >= usize::from(area.height) {
                break;
            }
        }
        let skipped = lines.len().saturating_sub(usize::from(area.height));
        lines.drain(..skipped);
        let mut area = area;
        bottom(buffer, &mut area, lines);
    }
}

fn top(buffer: &mut Buffer, area: &mut Rect, lines: Vec<Line<'static>>) {
    for line in lines {
        if area.height == 0 {
            return;
        }
        buffer.set_line(area.left(), area.top(), &line, area.width);
        area.y += 1;
        area.height -= 1;
    }
}

/// Puts lines at the bottom of what is free. Where there is no room, the first ones stay.
fn bottom(buffer: &mut Buffer, area: &mut Rect, lines: Vec<Line<'static>>) {
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height);
    area.height -= height;
    for (line, row) in lines.iter().zip(area.bottom()..area.bottom() + height) {
        buffer.set_line(area.left(), row, line, area.width);
    }
}
