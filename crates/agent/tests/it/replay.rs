//! Each recorded wire through its driver: the lines that it writes and the events that it gives are those of the record.
//!
//! `RECORD_WIRES=1 cargo test -p ensemble-agent` drives the real programs and records the wires and the events again; read the
//! difference before you keep it.

use std::path::{Path, PathBuf};

use ensemble_agent::{Driver, Event, Line, driver};
use serde_json::Value;

use crate::live::is_recorded;
use crate::summary;
use crate::wire::{self, Entry};

/// What a driver made of a wire.
struct Replayed {
    events: Vec<Event>,
    /// The lines that it wrote, and those that were recorded.
    wrote: Vec<Value>,
    recorded: Vec<Value>,
}

fn replay(path: &Path) -> Replayed {
    let mut replayed = Replayed { events: Vec::new(), wrote: Vec::new(), recorded: Vec::new() };
    let mut running: Option<Box<dyn Driver>> = None;
    for entry in wire::read(path) {
        let output = match entry {
            Entry::Start { kind, start } => running.insert(driver(kind, start)).begin(),
            Entry::Do(command) => running.as_mut().unwrap().command(command).unwrap(),
            Entry::From(line) => running.as_mut().unwrap().line(&Line::Text(line.to_string())),
            Entry::Exit(exit) => running.as_mut().unwrap().exited(&exit),
            Entry::To(line) => {
                replayed.recorded.push(line);
                continue;
            }
        };
        replayed.wrote.extend(output.lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        replayed.events.extend(output.events);
    }
    replayed
}

pub(crate) fn summaries(path: &Path) -> String {
    replay(path).events.iter().filter_map(summary::line).map(|line| line + "\n").collect()
}

pub(crate) fn wires() -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    let agents = inside(&wire::folder()).into_iter().filter(|path| path.is_dir());
    agents.flat_map(|agent| inside(&agent)).filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect()
}

#[test]
fn each_recorded_wire_gives_the_events_that_are_expected() {
    let wires = wires();
    assert!(wires.len() >= 20, "only {} wires are recorded", wires.len());
    let mut wrong = Vec::new();
    for path in wires {
        let expected = std::fs::read_to_string(path.with_extension("events")).unwrap_or_default();
        let found = summaries(&path);
        if is_recorded() {
            std::fs::write(path.with_extension("events"), &found).unwrap();
        } else if found != expected {
            wrong.push(format!("{}:\n--- expected\n{expected}--- found\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_driver_writes_what_was_recorded() {
    for path in wires() {
        let replayed = replay(&path);
        assert_eq!(replayed.wrote, replayed.recorded, "{}", path.display());
    }
}

#[test]
fn what_ends_a_turn_leaves_nothing_open() {
    for path in wires() {
        let (mut tools, mut asked) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for entry in replay(&path).events {
            match entry {
                Event::Tool(call) => {
                    let is_over = matches!(
                        call.status.as_ref().map(|status| status.as_str()),
                        Some("completed" | "failed" | "interrupted")
                    );
                    if is_over {
                        tools.remove(&call.tool_call_id)
                    } else {
                        tools.insert(call.tool_call_id.clone())
                    };
                }
                Event::Permission(one) => drop(asked.insert(one.request.clone())),
                Event::Withdrawn { request, .. } => drop(asked.remove(&request)),
                Event::TurnEnded { .. } => assert!(tools.is_empty(), "{}: {tools:?}", path.display()),
                _ => {}
            }
        }
    }
}
