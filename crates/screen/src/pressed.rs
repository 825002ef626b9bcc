//! Single keys of a terminal, for a program that prints while it waits for them.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Signal, getpgrp};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr, ttyname,
};
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The longest line that is typed.
const LONGEST: usize = 64;
/// How often a program in the background looks whether it has the terminal again.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
const ESCAPE: u8 = 0x1b;

/// The terminal, whose keys are read one by one. Ctrl-C stays a signal. It is given back when this is dropped.
pub struct Keys {
    /// Opened again, because whether a read waits is a setting of the opening, which other programs share.
    input: Receiver,
    before: Termios,
    single: Termios,
    /// This program was stopped, or in the background, and continues.
    continues: Arc<Notify>,
    /// A shell changes the settings of a program that was stopped (Ctrl-Z).
    again: JoinHandle<()>,
}

impl Keys {
    /// `None`: no person is at a terminal, or it belongs to another program.
    /// `redraw` is called when the program continues, where a shell has written over what it shows.
    pub fn here(redraw: fn()) -> Option<Self> {
        let stdin = io::stdin();
        if !(stdin.is_terminal() && io::stderr().is_terminal() && has_terminal()) {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        let path = ttyname(&stdin, Vec::new()).ok()?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let input = Receiver::from_file_unchecked(File::from(open(path, flags, Mode::empty()).ok()?)).ok()?;
        let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw())).ok()?;
        tcsetattr(&stdin, OptionalActions::Now, &single).ok()?;
        let continues = Arc::new(Notify::new());
        let (noted, again_single) = (continues.clone(), single.clone());
        let again = tokio::spawn(async move {
            while continued.recv().await.is_some() {
                if has_terminal() {
                    set(&again_single);
                    redraw();
                    noted.notify_one();
                }
            }
        });
        Some(Self { input, before, single, continues, again })
    }

    /// What is typed next, a key or what was pasted. It never comes when the terminal is gone.
    async fn typed(&self) -> Vec<u8> {
        let mut typed = [0; LONGEST];
        loop {
            if self.input.readable().await.is_err() {
                return std::future::pending().await;
            }
            if !has_terminal() {
                // A program in the background that reads is stopped. A shell that brings one back which ran says nothing.
                let _or_later = timeout(LOOKS_EVERY, self.continues.notified()).await;
                if has_terminal() {
                    set(&self.single);
                }
                continue;
            }
            match self.input.try_read(&mut typed) {
                Ok(length @ 1..) => return typed.into_iter().take(length).collect(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return std::future::pending().await,
            }
        }
    }

    /// Forgets what was typed for something else.
    pub fn forget(&self) {
        if has_terminal() {
            let _gone = tcflush(&self.input, QueueSelector::IFlush);
        }
    }

    /// The next of these keys that is pressed.
    pub async fn pressed_of(&self, keys: &[u8]) -> u8 {
        loop {
            // More at once was pasted, or is an arrow.
            if let [key] = self.typed().await[..]
                && keys.contains(&key)
            {
                return key;
            }
        }
    }

    /// Waits until a person presses what leaves.
    pub async fn left(&self) {
        self.pressed_of(&[b'q', ESCAPE]).await;
    }

    /// A line that is typed. `None`: it was left with the escape key. `echo` shows what is typed.
    pub async fn line(&self, echo: fn(&[u8])) -> Option<String> {
        let mut line = Line::default();
        loop {
            let ended = line.take(&self.typed().await);
            echo(take(&mut line.shown).as_bytes());
            if let Some(ended) = ended {
                return ended;
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.again.abort();
        if has_terminal() {
            set(&self.before);
        }
    }
}

fn set(settings: &Termios) {
    let _gone = tcsetattr(io::stdin(), OptionalActions::Now, settings);
}

/// Whether this program has the terminal, and no other one before it.
fn has_terminal() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// A line while it is typed, and what the terminal has to show of it.
#[derive(Default)]
struct Line {
    text: String,
    shown: String,
}

impl Line {
    /// Whether the line has ended, and with what.
    fn take(&mut self, typed: &[u8]) -> Option<Option<String>> {
        if let [ESCAPE, rest @ ..] = typed {
            // Arrows and the like begin with the same byte.
            return rest.is_empty().then(|| self.end(None));
        }
        for byte in typed {
            match byte {
                b'\r' | b'\n' if !self.text.trim().is_empty() => {
                    let text = take(&mut self.text);
                    return Some(self.end(Some(text)));
                }
                0x08 | 0x7f if self.text.pop().is_some() => self.shown.push_str("\x08 \x08"),
                b' '..=b'~' if self.text.len() < LONGEST => {
                    self.text.push(char::from(*byte));
                    self.shown.push(char::from(*byte));
                }
                _ => {}
            }
        }
        None
    }

    fn end(&mut self, text: Option<String>) -> Option<String> {
        self.shown.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_typed_corrected_and_left() {
        let mut line = Line::default();
        assert_eq!(line.take(b"\r12x"), None, "an empty line is no answer");
        assert_eq!(line.take(b"\x1b[D"), None, "an arrow is no text");
        assert_eq!(line.take(b"\x7f\x7f3"), None);
        assert_eq!(line.shown, "12x\x08 \x08\x08 \x083");
        assert_eq!(line.take(b"4\n5"), Some(Some("134".to_owned())));
        assert_eq!(line.take(b"\x1b"), Some(None));
        assert_eq!(line.take(&[b'1'; 200]), None);
        assert_eq!(line.text.len(), LONGEST);
    }
}
