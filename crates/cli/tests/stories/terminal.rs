//! A real terminal of a test: tmux without a person in front of it, and a shell in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::ensemble::User;

/// Agents need minutes to start on a busy machine.
const SOON: Duration = Duration::from_secs(300);

/// It ends when it is dropped.
pub(crate) struct Terminal(TempDir);

impl Terminal {
    /// A shell of this user.
    pub(crate) fn open(user: &User, columns: u16, rows: u16) -> Self {
        let terminal = Self(tempfile::tempdir().unwrap());
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let shell = "PS1='ready$ ' exec sh";
        let mut open = terminal.command(&["new-session", "-d", "-x", &columns, "-y", &rows, shell]);
        // The shell gets the environment of the server that this call starts.
        for (name, value) in user.command(&[]).get_envs() {
            match value {
                Some(value) => open.env(name, value),
                None => open.env_remove(name),
            };
        }
        let opened = open.current_dir(user.home()).env("LC_ALL", "C.UTF-8").output().expect("tmux is not installed");
        assert!(opened.status.success(), "{opened:?}");
        terminal.sees("ready$");
        terminal
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("tmux")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(self.socket()).args(arguments);
        command
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types a command of `ensemble` into the shell, with these variables.
    pub(crate) fn ensemble(&self, variables: &str, arguments: &str) {
        self.line(&format!("{variables} {} {arguments}", env!("CARGO_BIN_EXE_ensemble")));
    }

    /// The title that the program has given the terminal.
    pub(crate) fn title(&self) -> String {
        self.tmux(&["display-message", "-p", "#{pane_title}"]).trim().to_owned()
    }

    /// Types a text and enter.
    pub(crate) fn line(&self, text: &str) {
        self.types(text);
        self.key("Enter");
    }

    pub(crate) fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses a key, by tmux's name of it.
    pub(crate) fn key(&self, name: &str) {
        self.tmux(&["send-keys", name]);
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// The lines that are on it.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.tmux(&["capture-pane", "-p"]).lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Whether something on it has a colour (ECMA-48, section 8.3.117: 30 to 49, and what aixterm adds).
    pub(crate) fn has_colours(&self) -> bool {
        let codes = |text: &str| text.split_once('m').map(|(codes, _)| codes.to_owned()).unwrap_or_default();
        let is_colour =
            |code: &str| code.parse().is_ok_and(|code: u8| (30..=48).contains(&code) && code != 39 || code >= 90);
        let text = self.tmux(&["capture-pane", "-p", "-e"]);
        text.split("\u{1b}[").skip(1).any(|rest| codes(rest).split(';').any(is_colour))
    }

    /// Whether the alternate screen is shown, and whether the cursor is.
    pub(crate) fn is_taken(&self) -> (bool, bool) {
        let flags = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        (flags.starts_with('1'), flags.trim_end().ends_with('1'))
    }

    /// Waits until the lines are as wanted, and returns them.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut(&[String]) -> bool) -> Vec<String> {
        crate::ensemble::until(SOON, what, || {
            let lines = self.lines();
            if is_so(&lines) { Ok(lines) } else { Err(lines) }
        })
    }

    /// Waits until a line has this text.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) -> Vec<String> {
        self.until(text, |lines| lines.iter().any(|line| line.contains(text)))
    }

    /// The program that runs in the shell.
    pub(crate) fn program(&self) -> i32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let children = Path::new("/proc").join(shell.trim()).join("task").join(shell.trim()).join("children");
        std::fs::read_to_string(children).unwrap().split_whitespace().next().expect("no program").parse().unwrap()
    }

    /// The shell has the terminal as it was: its own screen, a cursor, and lines that are shown as they are typed.
    #[track_caller]
    pub(crate) fn is_given_back(&self) {
        self.until("the shell", |lines| {
            lines.iter().rfind(|line| !line.is_empty()).is_some_and(|line| line == "ready$")
        });
        assert_eq!(self.is_taken(), (false, true), "the first screen, and a cursor");
        self.line("clear; stty -a; echo shown");
        let lines = self.until("the settings", |lines| lines.iter().any(|line| line == "shown"));
        let settings: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
        for setting in ["echo", "icanon", "isig", "icrnl", "opost"] {
            assert!(settings.contains(&setting), "{setting}: {lines:#?}");
        }
        self.line("clear");
        self.until("an empty screen", |lines| lines.concat() == "ready$");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}
