//! The terminal: it is taken when the screen opens, and given back as it was however the program ends.

use std::io::{self, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;

/// Whether a terminal has to be given back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// The terminal on standard output, while the screen has it. Dropping it gives it back, and so does a panic. The caller
/// drops it when the process gets TERM or HUP.
pub struct Terminal(ratatui::Terminal<CrosstermBackend<Stdout>>);

impl Terminal {
    /// Takes the terminal: keys come unread, and the screen is a second one beside the person's own. The mouse stays the
    /// terminal's, so that selecting works.
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
        execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
        Ok(Self(ratatui::Terminal::new(CrosstermBackend::new(io::stdout()))?))
    }

    /// Draws one frame. Only the cells that have changed are written.
    pub fn draw(&mut self, screen: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(screen).map(drop)
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
        let _gone = execute!(io::stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _gone = disable_raw_mode();
    }
}
