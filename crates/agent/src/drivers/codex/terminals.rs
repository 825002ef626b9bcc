//! Commands that outlive a turn. The program calls them background terminals, and an interrupted turn leaves its own there.

use serde_json::{Value, json};

use super::{Call, Codex};
use crate::event::StateChange;
use crate::json::{list, one_line, text};

/// The commands that are listed.
const MOST_LISTED: usize = 16;

impl Codex {
    /// Asks which commands still run.
    pub(super) fn list_terminals(&mut self) {
        if let Some(thread) = self.thread.clone() {
            let params = json!({"threadId": thread, "limit": MOST_LISTED});
            self.call(Call::Terminals, "thread/backgroundTerminals/list", params);
        }
    }

    pub(super) fn terminals_listed(&mut self, result: &Value) {
        let commands = list(result, "/data").take(MOST_LISTED).map(|terminal| one_line(text(terminal, "/command")));
        self.still_run(commands.collect());
    }

    /// Ends the commands that still run, and then asks what is left.
    pub(super) fn end_terminals(&mut self) {
        if let Some(thread) = self.thread.clone() {
            self.call(Call::Order, "thread/backgroundTerminals/clean", json!({"threadId": thread}));
            self.list_terminals();
        }
    }

    fn still_run(&mut self, commands: Vec<String>) {
        if self.still_running != commands {
            self.still_running.clone_from(&commands);
            self.core.state(StateChange { still_running: Some(commands), ..StateChange::default() });
        }
    }
}
