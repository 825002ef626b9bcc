//! A device is linked: what both computers show, and what a person types.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ensemble::User;

/// A command that asks and is answered. What it says goes to standard error, or to the terminal of `script`.
pub(crate) struct Dialog {
    child: Child,
    said: std::sync::mpsc::Receiver<u8>,
    text: String,
}

pub(crate) const SOON: Duration = Duration::from_secs(60);

impl Dialog {
    pub(crate) fn start(user: &User, arguments: &[&str]) -> Self {
        let mut child = user.command(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let said = child.stderr.take().unwrap();
        Self::of(child, said)
    }

    /// In a terminal.
    pub(crate) fn in_terminal(user: &User, arguments: &[&str]) -> Self {
        let typed = format!("{} {}", env!("CARGO_BIN_EXE_ensemble"), arguments.join(" "));
        let mut command = Command::new("script");
        command.args(["-qefc", &typed, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("HOME", user.home()).env("ENSEMBLE_HOME", user.files());
        let mut child = command.spawn().unwrap();
        let said = child.stdout.take().unwrap();
        Self::of(child, said)
    }

    fn of(child: Child, mut from: impl Read + Send + 'static) -> Self {
        let (sender, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut byte = [0];
            while matches!(from.read(&mut byte), Ok(1)) && sender.send(byte[0]).is_ok() {}
        });
        Self { child, said, text: String::new() }
    }

    /// What was said until this, with it.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let begun = Instant::now();
        let mut bytes = Vec::new();
        loop {
            let left = SOON.saturating_sub(begun.elapsed());
            let byte = self.said.recv_timeout(left);
            bytes.push(byte.unwrap_or_else(|_| panic!("not said: {text}\n{}", String::from_utf8_lossy(&bytes))));
            if bytes.ends_with(text.as_bytes()) {
                let said = String::from_utf8_lossy(&bytes).into_owned();
                self.text.push_str(&said);
                return said;
            }
        }
    }

    pub(crate) fn answer(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    }

    /// The exit code, and the rest of what it said.
    pub(crate) fn end(mut self) -> (i32, String) {
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        while let Ok(byte) = self.said.recv_timeout(SOON) {
            rest.push(byte);
        }
        (self.child.wait().unwrap().code().unwrap_or(-1), String::from_utf8_lossy(&rest).into_owned())
    }
}

impl Drop for Dialog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `ensemble link` and the address that it shows.
pub(crate) fn link(user: &User, more: &[&str]) -> (Dialog, String) {
    code_of(user, &[&["link"], more].concat())
}

/// A command that shows the code of a linking, and the address in it.
pub(crate) fn code_of(user: &User, arguments: &[&str]) -> (Dialog, String) {
    shows(Dialog::start(user, arguments), "/link#v1.")
}

/// The line with this part, when a command has shown it.
pub(crate) fn shows(mut dialog: Dialog, part: &str) -> (Dialog, String) {
    dialog.until(part);
    dialog.until("\n");
    let line = dialog.text.lines().find(|line| line.contains(part)).unwrap().to_owned();
    (dialog, line)
}

/// `ensemble login --link` on another computer, and the digits that it shows.
pub(crate) fn join(user: &User, address: &str) -> (Dialog, String) {
    let mut dialog = Dialog::start(user, &["login", "--link"]);
    dialog.answer(address);
    dialog.until("other device: ");
    let digits = dialog.until("\n").trim().to_owned();
    (dialog, digits)
}

pub(crate) fn add(owner: &User, new: &User, more: &[&str]) {
    let (mut first, address) = link(owner, more);
    let (second, digits) = join(new, &address);
    first.until("new device shows: ");
    first.answer(&digits);
    let (code, said) = first.end();
    assert_eq!(code, 0, "{said}");
    let (code, said) = second.end();
    assert_eq!(code, 0, "{said}");
}
