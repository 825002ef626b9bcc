//! Tools of claude, and the plan that its task tools keep.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::body::{Diff, Location, Plan, PlanEntry, Terminal, ToolCall, ToolContent};
use ensemble_protocol::transcript::words::{PlanPriority, PlanStatus, ToolKind, ToolStatus};
use serde_json::Value;

use super::Claude;
use crate::event::Event;
use crate::json::{count, is_true, list, one_line, some, text};

/// The tasks of a plan.
const MOST_TASKS: usize = 256;
/// The calls of task tools whose result has not come.
const MOST_CALLS: usize = 64;

/// The tasks that the agent has written down.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: BTreeMap<u64, (String, PlanStatus)>,
    /// The inputs of task tools that are running, by the call's id.
    calls: BTreeMap<String, (String, Value)>,
}

impl Claude {
    pub(super) fn tool_use(&mut self, block: &Value, parent: Option<&str>) {
        let (name, id) = (text(block, "/name"), text(block, "/id"));
        if id.is_empty() {
            self.core.note("The agent called a tool without an id.");
            return;
        }
        let input = block.get("input").unwrap_or(&Value::Null);
        if name.starts_with("Task") && self.plan.calls.len() < MOST_CALLS {
            self.plan.calls.insert(id.to_owned(), (name.to_owned(), input.clone()));
        }
        if name == "TodoWrite" {
            let entries =
                list(input, "/todos").take(MOST_TASKS).map(|todo| entry(text(todo, "/content"), text(todo, "/status")));
            let entries = entries.collect();
            self.core.say(Event::Plan(Plan { entries }));
        }
        self.core.tool(ToolCall {
            tool_call_id: id.to_owned(),
            title: Some(title(name, input)),
            kind: Some(kind(name)),
            status: Some(ToolStatus::InProgress),
            locations: some(input, "/file_path")
                .or(some(input, "/notebook_path"))
                .map(|path| vec![Location { path: path.to_owned(), line: None }]),
            parent_tool_call_id: parent.map(str::to_owned),
            ..ToolCall::default()
        });
    }

    pub(super) fn tool_result(&mut self, block: &Value, whole: Option<&Value>, parent: Option<&str>) {
        let id = text(block, "/tool_use_id");
        if id.is_empty() {
            return;
        }
        let is_error = is_true(block, "/is_error");
        let whole = whole.unwrap_or(&Value::Null);
        self.noted(id, whole);
        let said = match block.get("content") {
            Some(Value::String(text)) => text.clone(),
            _ => list(block, "/content").map(|piece| text(piece, "/text")).collect::<Vec<_>>().join("\n"),
        };
        let is_command = self.core.tools.get(id).is_some_and(|known| known.kind == ToolKind::Execute);
        let mut content = if is_error { Vec::new() } else { changes(whole) };
        if content.is_empty() && !said.is_empty() {
            content.push(if is_command {
                let (terminal_id, output) = (id.to_owned(), said);
                ToolContent::Terminal(Terminal { terminal_id, output, cut: None, exit_status: None })
            } else {
                ToolContent::text(said)
            });
        }
        self.core.tool(ToolCall {
            tool_call_id: id.to_owned(),
            status: Some(if is_error { ToolStatus::Failed } else { ToolStatus::Completed }),
            content: Some(content),
            parent_tool_call_id: parent.map(str::to_owned),
            ..ToolCall::default()
        });
    }

    /// Keeps the plan when a task tool has done its work.
    fn noted(&mut self, id: &str, result: &Value) {
        let Some((name, input)) = self.plan.calls.remove(id) else { return };
        let tasks = &mut self.plan.tasks;
        match name.as_str() {
            "TaskCreate" => {
                let Some(number) = text(result, "/task/id").parse().ok() else { return };
                if tasks.len() < MOST_TASKS {
                    tasks.insert(number, (text(&input, "/subject").to_owned(), PlanStatus::Pending));
                }
            }
            "TaskUpdate" => {
                let number: Option<u64> = text(&input, "/taskId").parse().ok().or_else(|| count(&input, "/taskId"));
                let Some(number) = number else { return };
                match (text(&input, "/status"), tasks.get_mut(&number)) {
                    ("deleted", _) => drop(tasks.remove(&number)),
                    (status, Some((subject, known))) => {
                        if !status.is_empty() {
                            *known = PlanStatus::of(status);
                        }
                        if let Some(changed) = some(&input, "/subject") {
                            changed.clone_into(subject);
                        }
                    }
                    _ => return,
                }
            }
            _ => return,
        }
        let entries = self.plan.tasks.values().map(|(subject, status)| entry(subject, status.as_str())).collect();
        self.core.say(Event::Plan(Plan { entries }));
    }
}

fn entry(content: &str, status: &str) -> PlanEntry {
    PlanEntry { content: content.to_owned(), priority: PlanPriority::Medium, status: PlanStatus::of(status) }
}

/// The kind of a tool by its name.
pub(super) fn kind(name: &str) -> ToolKind {
    match name {
        "Bash" | "BashOutput" | "KillShell" | "KillBash" => ToolKind::Execute,
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => ToolKind::Edit,
        "Read" | "NotebookRead" => ToolKind::Read,
        "Grep" | "Glob" | "LS" | "ToolSearch" | "WebSearch" => ToolKind::Search,
        "WebFetch" => ToolKind::Fetch,
        "ExitPlanMode" | "EnterPlanMode" => ToolKind::SwitchMode,
        name if name.starts_with("Task") || name == "TodoWrite" || name == "Agent" => ToolKind::Think,
        _ => ToolKind::Unnamed,
    }
}

/// What a tool is called with, in a few words.
pub(super) fn about(input: &Value) -> Option<&str> {
    let fields = ["/command", "/file_path", "/path", "/pattern", "/url", "/query", "/subject", "/description"];
    fields.into_iter().find_map(|field| some(input, field))
}

/// A tool call in one line.
pub(super) fn title(name: &str, input: &Value) -> String {
    match (name, about(input)) {
        ("Bash", Some(command)) => one_line(command),
        (name, Some(about)) => one_line(&format!("{name} {about}")),
        (name, None) => one_line(name),
    }
}

/// What an edit has changed: one difference for each hunk, with the lines around it.
fn changes(result: &Value) -> Vec<ToolContent> {
    let path = some(result, "/filePath").unwrap_or_default();
    if text(result, "/type") == "create" && !path.is_empty() {
        let new_text = text(result, "/content").to_owned();
        return vec![ToolContent::Diff(Diff {
            path: path.to_owned(),
            old_text: None,
            new_text,
            line: None,
            cut: None,
        })];
    }
    let hunks = list(result, "/structuredPatch").filter(|_| !path.is_empty());
    hunks
        .map(|hunk| {
            let (mut old, mut new) = (String::new(), String::new());
            for line in list(hunk, "/lines").filter_map(Value::as_str) {
                side(line, &mut old, &mut new);
            }
            let line = count(hunk, "/oldStart").and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0);
            ToolContent::Diff(Diff { path: path.to_owned(), old_text: Some(old), new_text: new, line, cut: None })
        })
        .collect()
}

/// Puts a line of a unified difference where it belongs.
pub(crate) fn side(line: &str, old: &mut String, new: &mut String) {
    let put = |side: &mut String, text: &str| {
        side.push_str(text);
        side.push('\n');
    };
    match (line.strip_prefix('-'), line.strip_prefix('+'), line.strip_prefix(' ')) {
        (Some(removed), _, _) => put(old, removed),
        (_, Some(added), _) => put(new, added),
        (_, _, Some(same)) => {
            put(old, same);
            put(new, same);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_hunk_says_where_it_begins() {
        let hunk = |start: u64| {
            let lines = [" a", "-30", "+31", "\\ No newline at end of file"];
            json!({"oldStart": start, "oldLines": 2, "newStart": start, "newLines": 2, "lines": lines})
        };
        let result = json!({"filePath": "/w/a", "structuredPatch": [hunk(30), hunk(0)]});
        let expected = |line| {
            let (old_text, new_text) = (Some("a\n30\n".to_owned()), "a\n31\n".to_owned());
            ToolContent::Diff(Diff { path: "/w/a".to_owned(), old_text, new_text, line, cut: None })
        };
        assert_eq!(changes(&result), [expected(Some(30)), expected(None)]);
    }
}
