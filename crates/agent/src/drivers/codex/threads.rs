//! The conversations that codex has of a directory, as its app server lists them.

use std::path::PathBuf;

use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use super::QUIET;
use crate::drivers::rpc;
use crate::json::{list, some, text};
use crate::launch::Launch;
use crate::lines::Line;

/// Threads that are asked for: those that were changed last.
const MOST: usize = 200;

/// The id of the request for them.
const LIST: u64 = 2;

/// A conversation that a person has begun with codex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    pub id: String,
    /// The first prompt, as the person has typed it.
    pub first_prompt: String,
    pub changed: Timestamp,
    /// The file in which codex keeps it.
    pub file: Option<PathBuf>,
}

pub(crate) fn look() -> Launch {
    Launch::default().args(["app-server"]).args(QUIET)
}

/// What is written to codex to ask it for the conversations of a directory.
pub fn ask(directory: &str) -> String {
    let client = json!({"name": "ensemble", "title": "Ensemble", "version": env!("CARGO_PKG_VERSION")});
    // Threads of sub-agents are no conversations with a person.
    let wanted = json!({
        "cwd": directory, "limit": MOST, "sortKey": "updated_at", "modelProviders": [], "sourceKinds": ["cli", "vscode", "exec"],
    });
    let lines = [
        json!({"id": 1, "method": "initialize", "params": {"clientInfo": client}}),
        json!({"method": "initialized"}),
        json!({"id": LIST, "method": "thread/list", "params": wanted}),
    ];
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The conversations, if this line of codex lists them. The error is for people.
pub fn answer(line: &Line) -> Option<Result<Vec<Thread>, String>> {
    let Line::Text(line) = line else { return None };
    let message: Value = serde_json::from_str(line).ok()?;
    let error = message.get("error").filter(|error| !error.is_null());
    match (error, message.get("id").and_then(Value::as_u64)) {
        (Some(error), Some(1 | LIST)) => Some(Err(rpc::reason(error))),
        (None, Some(LIST)) => Some(Ok(list(&message, "/result/data").take(MOST).filter_map(thread).collect())),
        _ => None,
    }
}

fn thread(found: &Value) -> Option<Thread> {
    Some(Thread {
        id: some(found, "/id")?.to_owned(),
        first_prompt: text(found, "/preview").to_owned(),
        changed: Timestamp::from_unix_seconds(found.get("updatedAt").and_then(Value::as_i64).unwrap_or_default()),
        file: some(found, "/path").map(PathBuf::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &Value) -> Option<Result<Vec<Thread>, String>> {
        answer(&Line::Text(message.to_string()))
    }

    #[test]
    fn the_list_is_read_and_what_is_broken_is_left_out() {
        let good = json!({"id": "t", "preview": "Hello", "updatedAt": 60, "path": "/c/rollout-t.jsonl", "cwd": "/w"});
        let data = json!([good, {"preview": "no id"}, 7, {"id": "u", "preview": 5, "updatedAt": "x", "path": null}]);
        let found = read(&json!({"id": 2, "result": {"data": data}})).unwrap().unwrap();
        let file = Some(PathBuf::from("/c/rollout-t.jsonl"));
        let changed = Timestamp::from_unix_seconds(60);
        assert_eq!(found[0], Thread { id: "t".into(), first_prompt: "Hello".into(), changed, file });
        let changed = Timestamp::from_unix_seconds(0);
        assert_eq!(found[1..], [Thread { id: "u".into(), first_prompt: String::new(), changed, file: None }]);
        let many = vec![good; MOST + 1];
        assert_eq!(read(&json!({"id": 2, "result": {"data": many}})).unwrap().unwrap().len(), MOST);
    }

    #[test]
    fn only_an_answer_ends_the_wait() {
        assert_eq!(read(&json!({"id": 1, "result": {}})), None);
        assert_eq!(read(&json!({"method": "remoteControl/status/changed", "params": {"id": 2}})), None);
        assert_eq!(answer(&Line::Text("no JSON".to_owned())), None);
        let refused = json!({"id": 2, "error": {"code": -32600, "message": "Not now"}});
        assert_eq!(read(&refused), Some(Err("Not now".to_owned())));
    }
}
