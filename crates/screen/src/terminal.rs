//! The terminal: it is taken when the screen opens, and given back as it was however the program ends.

use std::io::{self, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use crossterm::style::Print;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, SetTitle, disable_raw_mode, enable_raw_mode};
use ratatui_core::terminal::Frame;
use ratatui_crossterm::CrosstermBackend;

use crate::calling::Call;

/// Keep the title, and bring it back (xterm, "ctlseqs": XTWINOPS 22 and 23). Terminals that do not know it leave it out.
const KEEP_TITLE: &str = "\x1b[22;0t";
const OLD_TITLE: &str = "\x1b[23;0t";

/// Whether a terminal has to be given back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// The terminal on standard output, while the screen has it. Dropping it gives it back, and so does a panic. The caller
/// drops it when the process gets TERM or HUP.
pub struct Terminal(ratatui_core::terminal::Terminal<CrosstermBackend<Stdout>>);

impl Terminal {
    /// Takes the terminal: raw mode, on the alternate screen. The mouse stays the terminal's, so that selecting works.
    pub fn open() -> io::Result<Self> {
        PANIC_HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        IS_TAKEN.store(true, Ordering::SeqCst);
        Self::take().inspect_err(|_| give_back())
    }

    fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        execute!(io::stdout(), Print(KEEP_TITLE), EnterAlternateScreen, EnableBracketedPaste)?;
        Ok(Self(ratatui_core::terminal::Terminal::new(CrosstermBackend::new(io::stdout()))?))
    }

    /// Draws one frame. Only the cells that have changed are written.
    pub fn draw(&mut self, screen: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(screen).map(drop)
    }

    /// Says it outside of the screen: the title, and for a request the bell and a notification (OSC 9, as in iTerm2, Windows Terminal,
    /// kitty and others; the rest ignore it). The texts have no control characters.
    pub fn call(&mut self, call: &Call, rings: bool) -> io::Result<()> {
        let mut out = io::stdout();
        if let Some(title) = &call.title {
            execute!(out, SetTitle(title))?;
        }
        if let Some(text) = call.ring.as_ref().filter(|_| rings) {
            write!(out, "\x1b]9;{text}\x07\x07")?;
            out.flush()?;
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back, once.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing back.
        let _gone = execute!(io::stdout(), DisableBracketedPaste, LeaveAlternateScreen, Print(OLD_TITLE), Show);
        let _gone = disable_raw_mode();
    }
}
