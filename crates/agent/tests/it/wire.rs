//! What went between a host and an agent, as files: one JSON object a line.
//!
//! `{"start": …}` begins a process, `{"do": …}` is a command of the host, `{">": …}` a line to the agent, `{"<": …}` one from it,
//! `{"exit": …}` its end.

use std::path::{Path, PathBuf};

use ensemble_agent::{Command, Exit, Kind, Start};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Entry {
    Start {
        kind: Kind,
        start: Start,
    },
    Do(Command),
    #[serde(rename = ">")]
    To(Value),
    #[serde(rename = "<")]
    From(Value),
    Exit(Exit),
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wires")
}

pub(crate) fn read(path: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}: {line}", path.display()));
    text.lines().map(line).collect()
}

/// Writes a wire without the names of this machine, and without most of long lists.
pub(crate) fn write(path: &Path, entries: &[Entry], names: &[(String, &str)]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut text = String::new();
    for entry in entries {
        let entry = match entry {
            Entry::From(line) => Entry::From(shorter(line.clone())),
            other => other.clone(),
        };
        let mut line = serde_json::to_string(&entry).unwrap();
        for (name, instead) in names {
            line = line.replace(name, instead);
        }
        text.push_str(&line);
        text.push('\n');
    }
    std::fs::write(path, text).unwrap();
}

fn shorter(line: Value) -> Value {
    const LONG: usize = 1_500;
    if line.to_string().len() < LONG { line } else { pruned(line) }
}

fn pruned(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().take(4).map(pruned).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, pruned(value))).collect(),
        Value::String(text) => Value::String(text.chars().take(300).collect()),
        other => other,
    }
}
