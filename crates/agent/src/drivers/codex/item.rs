//! Items of a turn: texts, thoughts, commands, changes of files and other tools.

use ensemble_protocol::transcript::body::{Diff, ExitStatus, Location, Terminal, ToolCall, ToolContent};
use ensemble_protocol::transcript::words::{ToolKind, ToolStatus};
use serde_json::{Value, json};

use super::Codex;
use crate::drivers::claude::side;
use crate::event::{Event, PartKind};
use crate::json::{list, one_line, some, text};

/// The changes that are remembered until they are done.
const MOST_CHANGES: usize = 64;
/// The sub-agents whose requests are asked.
const MOST_CHILDREN: usize = 64;

impl Codex {
    pub(super) fn item(&mut self, item: &Value, is_complete: bool) {
        let id = text(item, "/id");
        if id.is_empty() {
            return;
        }
        if !is_complete {
            self.has_begun(id);
        } else {
            self.done.insert(id.to_owned());
        }
        match text(item, "/type") {
            "agentMessage" | "plan" if is_complete => self.core.whole(id, PartKind::Text, text(item, "/text"), None),
            "reasoning" if is_complete => {
                let parts: Vec<&str> = list(item, "/summary").filter_map(Value::as_str).collect();
                self.core.whole(id, PartKind::Thought, &parts.join(""), None);
            }
            "commandExecution" => self.command_item(id, item, is_complete),
            "fileChange" => self.file_change(id, item, is_complete),
            "mcpToolCall" => {
                let title = format!("{} {}", text(item, "/server"), text(item, "/tool"));
                self.other(id, item, is_complete, &title, ToolKind::Unnamed);
            }
            "dynamicToolCall" => self.other(id, item, is_complete, text(item, "/tool"), ToolKind::Unnamed),
            "webSearch" => self.other(id, item, is_complete, text(item, "/query"), ToolKind::Search),
            "collabAgentToolCall" => {
                let threads = list(item, "/receiverThreadIds").filter_map(Value::as_str);
                let free = MOST_CHILDREN.saturating_sub(self.children.len());
                self.children.extend(threads.take(free).map(str::to_owned));
                let title = some(item, "/prompt").unwrap_or(text(item, "/tool")).to_owned();
                self.other(id, item, is_complete, &title, ToolKind::Think);
            }
            _ => {}
        }
    }

    fn command_item(&mut self, id: &str, item: &Value, is_complete: bool) {
        let action = item.pointer("/commandActions/0").unwrap_or(&Value::Null);
        let kind = match text(action, "/type") {
            "read" => ToolKind::Read,
            "search" | "listFiles" => ToolKind::Search,
            _ => ToolKind::Execute,
        };
        if is_complete && text(item, "/status") == "declined" && self.start.unattended().is_some() {
            let detail = text(item, "/command").to_owned();
            self.core.say(Event::Denied { tool: "command".to_owned(), detail });
        }
        let output = text(item, "/aggregatedOutput");
        let exit_code = item.get("exitCode").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
        let terminal = ToolContent::Terminal(Terminal {
            terminal_id: id.to_owned(),
            output: output.to_owned(),
            cut: None,
            exit_status: exit_code.map(|code| ExitStatus { exit_code: Some(code), signal: None }),
        });
        self.core.tool(ToolCall {
            tool_call_id: id.to_owned(),
            title: Some(one_line(some(action, "/command").unwrap_or(text(item, "/command")))),
            kind: Some(kind),
            status: Some(status(item, is_complete)),
            content: is_complete.then(|| vec![terminal]),
            ..ToolCall::default()
        });
    }

    fn file_change(&mut self, id: &str, item: &Value, is_complete: bool) {
        let changes = item.get("changes").cloned().unwrap_or_default();
        let paths: Vec<&str> = list(item, "/changes").map(|change| text(change, "/path")).take(64).collect();
        self.core.tool(ToolCall {
            tool_call_id: id.to_owned(),
            title: Some(one_line(&format!("Edit {}", paths.join(", ")))),
            kind: Some(ToolKind::Edit),
            status: Some(status(item, is_complete)),
            locations: Some(paths.iter().map(|path| Location { path: (*path).to_owned(), line: None }).collect()),
            content: Some(diffs(&changes)),
            ..ToolCall::default()
        });
        if is_complete {
            self.changes.remove(id);
        } else if self.changes.len() < MOST_CHANGES {
            self.changes.insert(id.to_owned(), changes);
        }
    }

    /// A change differs from what it was: an open request for it is made again.
    pub(super) fn patched(&mut self, params: &Value) {
        let id = text(params, "/itemId");
        let changes = params.get("changes").cloned().unwrap_or_default();
        if self.changes.get(id).is_some_and(|known| *known != changes) {
            self.changes.insert(id.to_owned(), changes.clone());
            let content = Some(diffs(&changes));
            self.core.tool(ToolCall { tool_call_id: id.to_owned(), content, ..ToolCall::default() });
            self.ask_again(id);
        }
    }

    fn other(&mut self, id: &str, item: &Value, is_complete: bool, title: &str, kind: ToolKind) {
        let said: Vec<ToolContent> = list(item, "/result/content")
            .chain(list(item, "/contentItems"))
            .filter_map(|part| some(part, "/text"))
            .chain(some(item, "/error/message"))
            .map(ToolContent::text)
            .collect();
        self.core.tool(ToolCall {
            tool_call_id: id.to_owned(),
            title: Some(one_line(title)),
            kind: Some(kind),
            status: Some(status(item, is_complete)),
            content: is_complete.then_some(said),
            ..ToolCall::default()
        });
    }
}

fn status(item: &Value, is_complete: bool) -> ToolStatus {
    match text(item, "/status") {
        "declined" | "failed" => ToolStatus::Failed,
        _ if is_complete => ToolStatus::Completed,
        _ => ToolStatus::InProgress,
    }
}

/// The differences of a change. A new file comes as its content, a change of one as a unified difference.
pub(super) fn diffs(changes: &Value) -> Vec<ToolContent> {
    let mut found = Vec::new();
    for change in list(changes, "") {
        let (path, diff) = (text(change, "/path").to_owned(), text(change, "/diff"));
        let mut put = |line: Option<u32>, old_text: Option<String>, new_text: String| {
            found.push(ToolContent::Diff(Diff { path: path.clone(), old_text, new_text, line, cut: None }));
        };
        match text(change, "/kind/type") {
            "add" => put(None, None, diff.to_owned()),
            "delete" => put(Some(1), Some(diff.to_owned()), String::new()),
            _ => {
                // One difference for each hunk.
                let mut hunk: Option<(Option<u32>, String, String)> = None;
                for line in diff.lines() {
                    if line.starts_with("@@") {
                        if let Some((first, old, new)) = hunk.replace((old_line(line), String::new(), String::new())) {
                            put(first, Some(old), new);
                        }
                    } else if let Some((_, old, new)) = hunk.as_mut() {
                        side(line, old, new);
                    }
                }
                if let Some((first, old, new)) = hunk {
                    put(first, Some(old), new);
                }
            }
        }
    }
    found
}

/// Where the old text begins, as the head of a hunk says it: `@@ -31,7 +31,8 @@`.
fn old_line(head: &str) -> Option<u32> {
    let numbers = head.strip_prefix("@@ -")?;
    numbers.split([',', ' ']).next()?.parse().ok().filter(|line| *line > 0)
}

/// All that a change does, for the person who is asked.
pub(super) fn whole_change(changes: &Value) -> String {
    let one = |change: &Value| {
        let kind = text(change, "/kind/type");
        let moved = some(change, "/kind/move_path").map(|to| format!(" -> {to}")).unwrap_or_default();
        format!("{kind} {}{moved}\n{}", text(change, "/path"), text(change, "/diff"))
    };
    list(changes, "").map(one).collect::<Vec<_>>().join("\n")
}

/// An item as the request for it names it.
pub(super) fn about(item: &str, params: &Value, changes: Option<&Value>) -> Value {
    json!({"item": item, "params": params, "changes": changes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hunk_says_where_it_begins() {
        let diff = "@@ -31,2 +31,2 @@\n a\n-30\n+31\n@@ -60 +60,2 @@ fn main() {\n b\n+c\n@@\n-d\n";
        let change = |kind: &str, diff: &str| json!({"path": "a", "kind": {"type": kind}, "diff": diff});
        let changes = json!([change("update", diff), change("add", "one\n"), change("delete", "one\n")]);
        let lines: Vec<_> = diffs(&changes)
            .into_iter()
            .map(|content| match content {
                ToolContent::Diff(diff) => diff.line,
                _ => panic!("{content:?} is no change"),
            })
            .collect();
        assert_eq!(lines, [Some(31), Some(60), None, None, Some(1)]);
    }
}
