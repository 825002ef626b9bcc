//! The line at the foot of the terminal, which says what may be pressed. What is printed meanwhile stands above it.

use std::io::{self, Write};
use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::print;

/// The most bytes of the log that wait.
const MOST: usize = 64 * 1024;

static FOOT: Mutex<Foot> = Mutex::new(Foot::None);

enum Foot {
    None,
    Shown(&'static str),
    /// A person reads a code, or types: the log waits.
    Held(Held),
}

#[derive(Default)]
struct Held {
    log: Vec<u8>,
    left_out: usize,
}

fn lock() -> MutexGuard<'static, Foot> {
    FOOT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the line, below what has waited.
pub(crate) fn show(line: &'static str) {
    print::error(&lock().change(Foot::Shown(line)));
}

/// Takes the line away. The log waits until it is shown again or cleared.
pub(crate) fn hold() {
    print::error(&lock().change(Foot::Held(Held::default())));
}

pub(crate) fn clear() {
    print::error(&lock().change(Foot::None));
}

/// Draws the line again, where a shell has written over it.
pub(crate) fn redraw() {
    print(&[]);
}

/// Prints to standard error.
pub(crate) fn print(text: &[u8]) {
    let foot = lock();
    print::error(&foot.with(text));
}

/// Where the log is written.
#[derive(Clone, Copy)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut foot = lock();
        print::error(&foot.logged(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// To the begin of the line, and erases it (ECMA-48, section 8.3.41).
const ERASED: &[u8] = b"\r\x1b[K";

/// What each of these returns is to be written.
impl Foot {
    fn change(&mut self, next: Self) -> Vec<u8> {
        let erased = if matches!(self, Self::Shown(_)) { ERASED } else { &[] };
        let held = match replace(self, next) {
            Self::Held(held) => held.all(),
            _ => Vec::new(),
        };
        [erased, &self.with(&held)].concat()
    }

    /// A text, with the line below it.
    fn with(&self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Shown(line) => [ERASED, text, line.as_bytes()].concat(),
            _ => text.to_vec(),
        }
    }

    fn logged(&mut self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Held(held) => {
                held.add(text);
                Vec::new()
            }
            _ => self.with(text),
        }
    }
}

impl Held {
    fn add(&mut self, text: &[u8]) {
        if self.log.len() + text.len() <= MOST {
            self.log.extend(text);
        } else {
            self.left_out += 1;
        }
    }

    fn all(mut self) -> Vec<u8> {
        if self.left_out > 0 {
            self.log.extend(format!("{} more lines of the log were left out.\n", self.left_out).bytes());
        }
        self.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_stays_at_the_foot_and_the_log_waits_while_a_person_reads() {
        let mut foot = Foot::None;
        assert_eq!(foot.logged(b"a\n"), b"a\n");
        assert_eq!(foot.change(Foot::Shown("keys")), b"\r\x1b[Kkeys");
        assert_eq!(foot.logged(b"b\n"), b"\r\x1b[Kb\nkeys");
        assert_eq!(foot.change(Foot::Held(Held::default())), b"\r\x1b[K");
        assert_eq!((foot.logged(b"c\n"), foot.with(b"code\n")), (Vec::new(), b"code\n".to_vec()));
        assert_eq!(foot.change(Foot::Shown("keys")), b"\r\x1b[Kc\nkeys");
        assert_eq!((foot.change(Foot::None), foot.with(b"d\n")), (b"\r\x1b[K".to_vec(), b"d\n".to_vec()));
    }

    #[test]
    fn what_waits_has_a_bound_and_says_what_it_lacks() {
        let mut held = Held::default();
        let line = [b'x'; MOST / 2];
        for _ in 0..5 {
            held.add(&line);
        }
        let all = held.all();
        assert!(all.len() < MOST + 100 && all.ends_with(b"3 more lines of the log were left out.\n"), "{}", all.len());
    }
}
