//! The text field: several lines, and the person's own prompts as history.

use std::cell::Cell;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ensemble_protocol::transcript::visible;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};
use ratatui_core::style::Style;
use ratatui_core::widgets::Widget;
use ratatui_textarea::{CursorMove, TextArea, WrapMode};

/// The bytes of a text. What a message takes is more than twice of it.
pub(crate) const MOST_TEXT: usize = 256 << 10;

/// What a key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Nothing,
    Moved,
    Changed,
    /// The text would be too long.
    Full,
    /// At the first line upwards, at the last line downwards.
    Earlier,
    Later,
}

/// The text that is being written.
pub(crate) struct Composer {
    area: TextArea<'static>,
    /// The rows of the text for this width.
    rows: Cell<Option<(u16, u16)>>,
    /// Which of the earlier prompts is shown, from the newest, and what was there before.
    earlier: Option<(usize, String)>,
}

impl Composer {
    pub(crate) fn new() -> Self {
        Self { area: area(""), rows: Cell::new(None), earlier: None }
    }

    pub(crate) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// What the person has written, also while an earlier prompt is shown in its place.
    pub(crate) fn written(&self) -> String {
        self.earlier.as_ref().map_or_else(|| self.text(), |(_, draft)| draft.clone())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Replaces the text. The cursor goes to its end.
    pub(crate) fn set(&mut self, text: &str) {
        self.area = area(text);
        self.rows.set(None);
    }

    /// The text, which is gone from here.
    pub(crate) fn take(&mut self) -> String {
        let text = self.text();
        self.set("");
        self.earlier = None;
        text
    }

    pub(crate) fn paste(&mut self, text: &str) -> Typed {
        let text = kept(text);
        if self.size() + text.len() > MOST_TEXT {
            return Typed::Full;
        }
        self.changed(|area| area.insert_str(text))
    }

    fn size(&self) -> usize {
        self.area.lines().iter().map(|line| line.len() + 1).sum()
    }

    /// A key that is for the text.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Typed {
        let (ctrl, alt) = (key.modifiers.contains(KeyModifiers::CONTROL), key.modifiers.contains(KeyModifiers::ALT));
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        match (key.code, ctrl, alt) {
            (KeyCode::Enter, _, true) | (KeyCode::Char('j'), true, false) => self.newline(),
            (KeyCode::Enter, ..) if shift => self.newline(),
            (KeyCode::Char('w'), true, false) | (KeyCode::Backspace, _, true) | (KeyCode::Backspace, true, _) => {
                self.changed(TextArea::delete_word)
            }
            (KeyCode::Char('d'), false, true) => self.changed(TextArea::delete_next_word),
            (KeyCode::Char('u'), true, false) => self.changed(TextArea::delete_line_by_head),
            (KeyCode::Char('k'), true, false) => self.changed(TextArea::delete_line_by_end),
            (KeyCode::Char('h'), true, false) | (KeyCode::Backspace, ..) => self.changed(TextArea::delete_char),
            (KeyCode::Char('d'), true, false) | (KeyCode::Delete, ..) => self.changed(TextArea::delete_next_char),
            (KeyCode::Char('z'), true, false) => self.changed(TextArea::undo),
            (KeyCode::Char('a'), true, false) | (KeyCode::Home, ..) => self.moved(CursorMove::Head),
            (KeyCode::Char('e'), true, false) | (KeyCode::End, ..) => self.moved(CursorMove::End),
            (KeyCode::Char('b'), false, true) | (KeyCode::Left, true, _) | (KeyCode::Left, _, true) => {
                self.moved(CursorMove::WordBack)
            }
            (KeyCode::Char('f'), false, true) | (KeyCode::Right, true, _) | (KeyCode::Right, _, true) => {
                self.moved(CursorMove::WordForward)
            }
            (KeyCode::Char('b'), true, false) | (KeyCode::Left, ..) => self.moved(CursorMove::Back),
            (KeyCode::Char('f'), true, false) | (KeyCode::Right, ..) => self.moved(CursorMove::Forward),
            (KeyCode::Up, ..) if self.area.screen_cursor().row == 0 => Typed::Earlier,
            (KeyCode::Up, ..) => self.moved(CursorMove::Up),
            (KeyCode::Down, ..) if self.is_at_last_row() => Typed::Later,
            (KeyCode::Down, ..) => self.moved(CursorMove::Down),
            // Some keyboards send both with the third level of a key.
            (KeyCode::Char(letter), ctrl, alt) if ctrl == alt => self.paste(letter.encode_utf8(&mut [0; 4])),
            _ => Typed::Nothing,
        }
    }

    /// Shows an earlier prompt. `prompts` has them from the newest on.
    pub(crate) fn earlier(&mut self, prompts: &[String]) -> bool {
        let (at, draft) = match self.earlier.take() {
            Some((at, draft)) => (at + 1, draft),
            None => (0, self.text()),
        };
        let Some(prompt) = prompts.get(at) else {
            self.earlier = at.checked_sub(1).map(|at| (at, draft));
            return false;
        };
        self.set(prompt);
        self.earlier = Some((at, draft));
        true
    }

    /// Shows a later prompt, at last what was there before.
    pub(crate) fn later(&mut self, prompts: &[String]) -> bool {
        let Some((at, draft)) = self.earlier.take() else { return false };
        match at.checked_sub(1).and_then(|at| Some((at, prompts.get(at)?))) {
            Some((at, prompt)) => {
                self.set(prompt);
                self.earlier = Some((at, draft));
            }
            None => self.set(&draft),
        }
        true
    }

    /// The rows that the text takes.
    pub(crate) fn rows(&self, width: u16) -> u16 {
        if let Some((_, rows)) = self.rows.get().filter(|(known, _)| *known == width) {
            return rows;
        }
        let place = Rect::new(0, 0, width, 1);
        // Drawing is what tells the field its width. A copy, because it remembers where it was scrolled to as well.
        let area = self.area.clone();
        (&area).render(place, &mut Buffer::empty(place));
        let rows = u16::try_from(last_row(&area) + 1).unwrap_or(u16::MAX);
        self.rows.set(Some((width, rows)));
        rows
    }

    /// Draws the text. The place of the cursor.
    pub(crate) fn draw(&mut self, buffer: &mut Buffer, place: Rect) -> Position {
        if self.area.scroll_offset().0 > 0 && self.rows(place.width) <= place.height {
            // It was scrolled in fewer rows, and would stay so.
            let (text, cursor) = (self.text(), self.area.cursor());
            self.area = area(&text);
            let place = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
            self.area.move_cursor(CursorMove::Jump(place(cursor.0), place(cursor.1)));
        }
        (&self.area).render(place, buffer);
        let (cursor, (top, left)) = (self.area.screen_cursor(), self.area.scroll_offset());
        let row = u16::try_from(cursor.row).unwrap_or(u16::MAX).saturating_sub(top);
        let column = u16::try_from(cursor.col).unwrap_or(u16::MAX).saturating_sub(left);
        let (right, bottom) = (place.right().saturating_sub(1), place.bottom().saturating_sub(1));
        Position::new((place.x + column).min(right), (place.y + row).min(bottom))
    }

    fn newline(&mut self) -> Typed {
        self.changed(|area| {
            area.insert_newline();
            true
        })
    }

    fn changed(&mut self, change: impl FnOnce(&mut TextArea<'static>) -> bool) -> Typed {
        if !change(&mut self.area) {
            return Typed::Nothing;
        }
        self.rows.set(None);
        self.earlier = None;
        Typed::Changed
    }

    fn moved(&mut self, to: CursorMove) -> Typed {
        self.area.move_cursor(to);
        Typed::Moved
    }

    fn is_at_last_row(&self) -> bool {
        self.area.screen_cursor().row >= last_row(&self.area)
    }
}

fn area(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(kept(text).split('\n').map(str::to_owned).collect());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_cursor_line_style(Style::new());
    area.set_cursor_style(Style::new());
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

/// The last row of the text on the screen.
fn last_row(area: &TextArea<'static>) -> usize {
    let mut area = area.clone();
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area.screen_cursor().row
}

/// What is kept of a text that is typed or pasted: nothing in it can be hidden or control the terminal. The characters that join
/// letters and choose how they look belong to scripts and to emoji.
fn kept(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n").replace(['\u{a0}', '\u{202f}'], " ");
    let mut kept = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\u{200c}' | '\u{200d}' | '\u{fe0f}' => kept.push(letter),
            letter if letter.is_ascii_graphic() || letter == ' ' => kept.push(letter),
            letter => kept.push_str(&visible(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    kept
}
