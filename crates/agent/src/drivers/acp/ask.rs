//! Permission requests of the agent, and their answers.

use ensemble_protocol::transcript::words::{OptionKind, ToolKind};
use serde_json::{Value, json};

use super::Acp;
use super::update::{contents, tool_call};
use crate::command::{Refused, Reply};
use crate::core::{Wish, option, whole_input};
use crate::drivers::Kind;
use crate::json::{list, some, text};

/// Nothing but what is shown is needed to answer.
#[derive(Debug)]
pub(super) struct About;

/// JSON-RPC 2.0: the method does not exist.
const NO_METHOD: i64 = -32_601;

impl Acp {
    pub(super) fn request(&mut self, id: &Value, method: &str, params: &Value) {
        if method == "session/request_permission" && text(params, "/sessionId") == self.session.as_deref().unwrap_or("")
        {
            self.wants(id, params);
            return;
        }
        // Some agents wait for seconds when they get no answer.
        let error = json!({"code": NO_METHOD, "message": "this client does not offer the method"});
        self.core.write(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    fn wants(&mut self, id: &Value, params: &Value) {
        if self.core.turn.is_none() {
            // No turn runs, so there is no one to ask.
            self.cancelled(id);
            return;
        }
        let call = params.get("toolCall").unwrap_or(&Value::Null);
        let tool_call_id = some(call, "/toolCallId").map(str::to_owned);
        let is_known = tool_call_id.as_deref().is_none_or(|id| self.core.tools.get(id).is_some());
        if !is_known || list(call, "/content").next().is_some() {
            // gemini names a call for the first time here, and opencode what it will change.
            self.core.tool(tool_call(call));
        }
        // The request may leave out what the agent has said of the call before.
        let tool = tool_call_id.as_deref().and_then(|id| self.core.tools.get(id)).map(|known| known.kind.clone());
        let options = list(params, "/options").map(|offer| {
            let name = match text(offer, "/name") {
                "" => text(offer, "/optionId"),
                name => name,
            };
            let kind = kind_of(self.kind, tool.as_ref(), offer);
            // Its own name does not say how far it reaches.
            let place =
                if self.kind == Kind::Opencode && kind == OptionKind::AllowAlways { ": for this session" } else { "" };
            option(text(offer, "/optionId"), format!("{name}{place}"), kind)
        });
        let options: Vec<_> = options.filter(|option| !option.option_id.is_empty()).collect();
        let content = contents(call);
        let known = tool_call_id.as_deref().and_then(|id| self.core.tools.get(id)).map(|known| known.title.clone());
        let title = some(call, "/title").map(str::to_owned).or(known).unwrap_or_default();
        let mut detail = whole(&title, call);
        if call.get("rawInput").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) && detail == title {
            // opencode names the input of an MCP tool only after the call was allowed.
            detail.push_str("\n(The agent does not say what it calls it with.)");
        }
        let wish = Wish { tool_call_id, detail, title, content, options, input: call.clone() };
        self.core.ask(id, params, wish, About);
    }

    pub(super) fn reply(&mut self, request: &str, reply: &Reply) -> Result<(), Refused> {
        let asked = self.core.asked.get(request).ok_or(Refused::Closed)?;
        let Reply::Option { id, .. } = reply else { return Err(Refused::NoSuchOption) };
        if !asked.options.contains(id) {
            return Err(Refused::NoSuchOption);
        }
        let asked = self.core.answered(request)?;
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": id}});
        self.core.write(&json!({"jsonrpc": "2.0", "id": asked.agent_id, "result": outcome}));
        Ok(())
    }

    /// Cancels the turn. gemini waits for an answer to what it has asked, so every open request gets one.
    pub(super) fn interrupt(&mut self) {
        if self.core.turn.is_some() {
            let params = self.with_session(json!({}));
            self.tell("session/cancel", params);
            self.is_cancelled = true;
        }
        let ids: Vec<Value> = self.core.asked.values().map(|asked| asked.agent_id.clone()).collect();
        self.core.withdraw_all("the turn was interrupted");
        ids.iter().for_each(|id| self.cancelled(id));
    }

    fn cancelled(&mut self, id: &Value) {
        let outcome = json!({"outcome": {"outcome": "cancelled"}});
        self.core.write(&json!({"jsonrpc": "2.0", "id": id, "result": outcome}));
    }
}

/// What an option does. A guest may choose only what is for once, so the agent's word is not enough: for gemini and opencode the option's
/// id decides, and an option of another agent that changes its mode is never for once.
fn kind_of(agent: Kind, tool: Option<&ToolKind>, offer: &Value) -> OptionKind {
    let kind = OptionKind::of(text(offer, "/kind"));
    let is_for_once = match agent {
        Kind::Gemini => text(offer, "/optionId") == "proceed_once",
        Kind::Opencode => text(offer, "/optionId") == "once",
        _ => tool != Some(&ToolKind::SwitchMode),
    };
    if kind == OptionKind::AllowOnce && !is_for_once { OptionKind::AllowAlways } else { kind }
}

/// All that the request says about the call. Texts and diffs are written out, everything else is shown as it came. What it says in two
/// ways stands once.
fn whole(title: &str, call: &Value) -> String {
    let changes: Vec<&Value> = list(call, "/content").filter(|content| text(content, "/type") == "diff").collect();
    let mut shown = vec![title.to_owned()];
    if let Some(input) = call.get("rawInput").filter(|input| !input.is_null()) {
        shown.push(whole_input(&["command", "path"], &without_repetition(input, &changes)));
    }
    for content in list(call, "/content") {
        shown.push(match text(content, "/type") {
            "content" if some(content, "/content/text").is_some() => text(content, "/content/text").to_owned(),
            "diff" => {
                let old = text(content, "/oldText").lines().map(|line| format!("-{line}"));
                let new = text(content, "/newText").lines().map(|line| format!("+{line}"));
                let lines: Vec<String> = old.chain(new).collect();
                format!("{}\n{}", text(content, "/path"), lines.join("\n"))
            }
            _ => content.to_string(),
        });
    }
    let is_said = |path: &&str| *path == title || changes.iter().any(|change| text(change, "/path") == *path);
    let places = list(call, "/locations").map(|place| text(place, "/path"));
    shown.extend(places.filter(|path| !is_said(path)).map(str::to_owned));
    shown.retain(|part| !part.is_empty());
    shown.dedup();
    shown.join("\n")
}

/// An input without a unified diff of a change that is shown as well. One that says more stays, without its head.
fn without_repetition(input: &Value, changes: &[&Value]) -> Value {
    let mut input = input.clone();
    let Some(fields) = input.as_object_mut() else { return input };
    let Some(diff) = fields.get("diff").and_then(Value::as_str).map(without_head) else { return input };
    if changes.iter().any(|change| is_of(&diff, change)) {
        fields.remove("diff");
    } else {
        fields.insert("diff".to_owned(), diff.into());
    }
    input
}

/// A unified diff without the two lines with which some programs begin one: the path and a rule.
fn without_head(diff: &str) -> String {
    let head = diff.split_once('\n').filter(|(path, _)| path.starts_with("Index: "));
    let rest = head.and_then(|(_, rest)| rest.split_once('\n'));
    rest.filter(|(rule, _)| rule.chars().all(|c| c == '=')).map_or(diff, |(_, rest)| rest).to_owned()
}

/// Whether a unified diff names no other file than a change, and has no lines but those of its texts, in their order.
fn is_of(diff: &str, change: &Value) -> bool {
    let (mut old, mut new) = (text(change, "/oldText").lines(), text(change, "/newText").lines());
    let path = text(change, "/path");
    let is_name =
        |line: &&str| [format!("--- {path}"), format!("+++ {path}")].iter().any(|name| name == line.trim_end());
    let mut hunks = diff.lines().skip_while(is_name);
    hunks.all(|line| match line.split_at_checked(1) {
        Some(("-", line)) => old.any(|known| known == line),
        Some(("+", line)) => new.any(|known| known == line),
        Some((" ", line)) => old.any(|known| known == line) && new.any(|known| known == line),
        Some(("@", _)) => line.starts_with("@@ -") && line.ends_with(" @@"),
        _ => line == "\\ No newline at end of file",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Index: /w/a\n=====\n";
    const DIFF: &str = "--- /w/a\n+++ /w/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n\\ No newline at end of file\n";

    fn call(diff: &str) -> Value {
        let change = json!({"type": "diff", "path": "/w/a", "oldText": "one\ntwo", "newText": "one\n2"});
        json!({
            "rawInput": {"filepath": "/w/a", "diff": diff}, "content": [change],
            "locations": [{"path": "/w/a"}, {"path": "/w/b"}],
        })
    }

    #[test]
    fn only_what_is_known_to_be_for_once_is_for_once() {
        use OptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let of = |agent, tool: &str, (id, kind): (&str, &str)| {
            kind_of(agent, Some(&ToolKind::of(tool)), &json!({"optionId": id, "kind": kind}))
        };
        assert_eq!(of(Kind::Gemini, "execute", ("proceed_once", "allow_once")), AllowOnce);
        assert_eq!(of(Kind::Gemini, "execute", ("proceed_always_and_save", "allow_once")), AllowAlways);
        assert_eq!(of(Kind::Opencode, "edit", ("once", "allow_once")), AllowOnce);
        assert_eq!(of(Kind::Opencode, "edit", ("always", "allow_once")), AllowAlways);
        assert_eq!(of(Kind::Acp, "execute", ("yes", "allow_once")), AllowOnce);
        assert_eq!(of(Kind::Acp, "switch_mode", ("default", "allow_once")), AllowAlways);
        assert_eq!(of(Kind::Acp, "switch_mode", ("plan", "reject_once")), RejectOnce);
    }

    #[test]
    fn a_change_that_is_said_twice_stands_once() {
        let shown = whole("/w/a", &call(&format!("{HEAD}{DIFF}")));
        assert_eq!(shown, "/w/a\nfilepath: /w/a\n/w/a\n-one\n-two\n+one\n+2\n/w/b");
    }

    #[test]
    fn a_diff_that_says_more_than_the_change_stays() {
        for more in ["+rm -rf /\n", "-three\n", " four\n", "five\n", "@@ -9 +9 @@\n+six\n", "@@ -1 +1 @@ seven\n"] {
            let shown = whole("Edit", &call(&format!("{HEAD}{DIFF}{more}")));
            assert!(shown.contains(more) && shown.contains("+++ /w/a\n"), "{shown}");
            assert!(!shown.contains("Index") && !shown.contains("==="), "{shown}");
        }
        let other = whole("Edit", &call(&DIFF.replace("+++ /w/a", "+++ /etc/passwd")));
        assert!(other.contains("+++ /etc/passwd"), "{other}");
    }
}
