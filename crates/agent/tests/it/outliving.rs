//! Commands of codex that outlive their turn.

use ensemble_agent::{Command, Event, Kind};
use ensemble_protocol::transcript::words::{Mode, StopReason};

use crate::live::{Live, Place};
use crate::stories::stop;

impl Live<'_> {
    /// Reads until the agent's work has this file.
    fn until_file(&mut self, name: &str) {
        let path = self.file(name);
        self.until_so(name, || path.exists());
    }

    /// Reads until no process has this text among its arguments.
    fn until_no_process_says(&mut self, text: &str) {
        self.until_so("the end of a process", || {
            let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
            let mut commands = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
            !commands.any(|command| String::from_utf8_lossy(&command).contains(text))
        });
    }
}

#[test]
fn codex_ends_what_an_interrupted_turn_has_started() {
    let mut place = Place::new(Kind::Codex, "ends_what_it_has_started");
    let mut live = place.begin(place.start(Mode::Bypass));
    let go = live.file("go");
    live.prompt(&format!("[[run touch begun; until [ -e {} ]; do sleep 0.1; done]]", go.display()));
    live.until_file("begun");
    live.command(Command::Interrupt);
    assert_eq!(stop(&live.turn_ends()), &StopReason::Cancelled);
    live.until_no_process_says(go.to_str().unwrap());
    live.stop();
}

#[test]
fn codex_says_what_outlives_a_turn_and_ends_it_when_it_is_interrupted_idle() {
    let mut place = Place::new(Kind::Codex, "says_what_outlives_a_turn");
    let mut live = place.begin(place.start(Mode::Bypass));
    let go = live.file("go");
    let command = format!("until [ -e {} ]; do sleep 0.1; done", go.display());
    live.prompt(&format!(r#"[[tool exec_command {{"cmd":"{command}","yield_time_ms":250}}]]"#));
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    let says = |event: &Event, wanted: usize| matches!(event, Event::State(change) if change.still_running.as_ref().is_some_and(|commands| commands.len() == wanted));
    live.until("the command", |event| says(event, 1));
    live.command(Command::Interrupt);
    live.until("no command", |event| says(event, 0));
    live.until_no_process_says(go.to_str().unwrap());
    live.stop();
}
