//! Requests of the app server: approvals and questions.

use ensemble_protocol::transcript::body::{PermissionOption, QuestionItem, QuestionOption};
use ensemble_protocol::transcript::words::OptionKind;
use serde_json::{Map, Value, json};

use super::item::{about, diffs, whole_change};
use super::{Call, Codex};
use crate::command::{Refused, Reply};
use crate::core::{Wish, option, whole_input};
use crate::json::{list, some, text};

/// What is remembered of a request.
#[derive(Debug)]
pub(super) struct About {
    method: String,
    params: Value,
    /// The item that it is about.
    item: String,
}

const COMMAND: &str = "item/commandExecution/requestApproval";
const CHANGE: &str = "item/fileChange/requestApproval";
/// The program asks in this way whether a tool of an MCP server may be called, and servers ask people for what they like.
const ELICIT: &str = "mcpServer/elicitation/request";
const INPUT: &str = "item/tool/requestUserInput";
/// JSON-RPC 2.0: the method does not exist.
const NO_METHOD: i64 = -32_601;

impl Codex {
    pub(super) fn request(&mut self, id: &Value, method: &str, params: &Value) {
        let thread = text(params, "/threadId");
        let is_ours = self.thread.as_deref() == Some(thread) || self.children.contains(thread);
        match method {
            COMMAND if is_ours => self.wants_command(id, params),
            CHANGE if is_ours => self.wants_change(id, params),
            INPUT if is_ours => self.asks(id, params),
            ELICIT if is_ours && asks_for_consent(params) => self.wants_tool(id, params),
            _ => {
                let error = json!({"code": NO_METHOD, "message": "this client does not offer the method"});
                self.core.write(&json!({"id": id, "error": error}));
            }
        }
    }

    fn remembered(method: &str, params: &Value) -> About {
        About { method: method.to_owned(), params: params.clone(), item: text(params, "/itemId").to_owned() }
    }

    fn wants_command(&mut self, id: &Value, params: &Value) {
        let command = text(params, "/command");
        let mut detail = vec![command.to_owned()];
        detail.extend(some(params, "/cwd").map(|cwd| format!("in {cwd}")));
        if let Some(network) = params.get("networkApprovalContext").filter(|network| !network.is_null()) {
            detail.push(format!("network: {network}"));
        }
        detail.extend(some(params, "/reason").map(|reason| format!("({reason})")));
        let item = text(params, "/itemId");
        let mut options = vec![option("accept", "Allow once", OptionKind::AllowOnce)];
        options.push(option(
            "accept-session",
            "Always allow exactly this command: for this session",
            OptionKind::AllowAlways,
        ));
        let prefix: Option<Vec<&str>> = list(params, "/proposedExecpolicyAmendment").map(Value::as_str).collect();
        if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
            let name = format!(
                "Always allow commands that begin with `{}`: kept for all projects, in rules/default.rules of codex",
                prefix.join(" ")
            );
            options.push(option("accept-rule", name, OptionKind::AllowAlways));
        }
        options.extend(refusals());
        if command.is_empty() && detail.len() < 2 {
            options.retain(|option| option.kind == OptionKind::RejectOnce);
        }
        let wish = Wish {
            tool_call_id: Some(item.to_owned()),
            title: some(params, "/commandActions/0/command").unwrap_or(command).to_owned(),
            detail: detail.join("\n"),
            content: Vec::new(),
            options,
            input: params.clone(),
        };
        self.core.ask(id, &about(item, params, None), wish, Self::remembered(COMMAND, params));
    }

    fn wants_change(&mut self, id: &Value, params: &Value) {
        let item = text(params, "/itemId");
        let changes = self.changes.get(item).cloned();
        let mut options = vec![option("accept", "Allow once", OptionKind::AllowOnce)];
        options.push(option(
            "accept-session",
            "Always allow changes of these files: for this session",
            OptionKind::AllowAlways,
        ));
        options.extend(refusals());
        // What cannot be shown cannot be allowed.
        options.retain(|option| changes.is_some() || option.kind == OptionKind::RejectOnce);
        let mut detail = changes.as_ref().map_or("The agent did not say what it changes.".to_owned(), whole_change);
        for (field, words) in [("/reason", ""), ("/grantRoot", "It wants to write everywhere in: ")] {
            if let Some(value) = some(params, field) {
                detail.push_str(&format!("\n({words}{value})"));
            }
        }
        let paths: Vec<&str> =
            changes.iter().flat_map(|changes| list(changes, "")).map(|one| text(one, "/path")).collect();
        let wish = Wish {
            tool_call_id: Some(item.to_owned()),
            title: format!("Edit {}", paths.join(", ")),
            detail,
            content: changes.as_ref().map(diffs).unwrap_or_default(),
            options,
            input: changes.clone().unwrap_or_default(),
        };
        self.core.ask(id, &about(item, params, changes.as_ref()), wish, Self::remembered(CHANGE, params));
    }

    fn wants_tool(&mut self, id: &Value, params: &Value) {
        let mut options = vec![option("accept", "Allow once", OptionKind::AllowOnce)];
        options.extend(refusals());
        let input = params.pointer("/_meta/tool_params").cloned().unwrap_or_default();
        let wish = Wish {
            tool_call_id: None,
            title: text(params, "/message").to_owned(),
            detail: format!("{}\n{}", text(params, "/serverName"), whole_input(&[], &input)).trim().to_owned(),
            content: Vec::new(),
            options,
            input,
        };
        self.core.ask(id, params, wish, Self::remembered(ELICIT, params));
    }

    /// Asks again about an item that has changed.
    pub(super) fn ask_again(&mut self, item: &str) {
        let found = self.core.asked.values().find(|asked| asked.about.item == item && asked.about.method == CHANGE);
        if let Some((id, params)) = found.map(|asked| (asked.agent_id.clone(), asked.about.params.clone())) {
            self.wants_change(&id, &params);
        }
    }

    fn asks(&mut self, id: &Value, params: &Value) {
        let questions = list(params, "/questions").map(|question| QuestionItem {
            id: text(question, "/id").to_owned(),
            text: text(question, "/question").to_owned(),
            header: some(question, "/header").map(str::to_owned),
            options: Some(list(question, "/options").map(choice).collect::<Vec<_>>())
                .filter(|options| !options.is_empty()),
            multiple: false,
        });
        let questions = questions.collect();
        let item = text(params, "/itemId");
        self.core.question(
            id,
            &about(item, params, None),
            Some(item.to_owned()),
            questions,
            Self::remembered(INPUT, params),
        );
    }

    pub(super) fn reply(&mut self, request: &str, reply: &Reply) -> Result<(), Refused> {
        let asked = self.core.asked.get(request).ok_or(Refused::Closed)?;
        let is_question = asked.about.method == INPUT;
        let (result, message) = match reply {
            Reply::Option { id, message } if !is_question && asked.options.contains(id) => {
                let decision = decision(id, &asked.about.params);
                let is_tool = asked.about.method == ELICIT;
                let result =
                    if is_tool { json!({"action": decision, "content": {}}) } else { json!({"decision": decision}) };
                (result, message.clone())
            }
            Reply::Answers(answers) if is_question => {
                let mut given = Map::new();
                for (id, chosen) in answers {
                    if !asked.options.contains(id) {
                        return Err(Refused::NoSuchOption);
                    }
                    given.insert(id.clone(), json!({"answers": chosen}));
                }
                (json!({"answers": given}), None)
            }
            Reply::Refuse { message } if is_question => (json!({"answers": {}}), message.clone()),
            _ => return Err(Refused::NoSuchOption),
        };
        let asked = self.core.answered(request)?;
        self.core.write(&json!({"id": asked.agent_id, "result": result}));
        // The answer itself has no place for words.
        if let (Some(message), Some(thread), Some(turn)) = (message, self.thread.clone(), self.turn.clone()) {
            let input = json!([{"type": "text", "text": message, "text_elements": []}]);
            let params = json!({"threadId": thread, "expectedTurnId": turn, "input": input});
            self.call(Call::Order, "turn/steer", params);
        }
        Ok(())
    }
}

/// Whether only a yes or a no is wanted, and nothing is to be filled in.
fn asks_for_consent(params: &Value) -> bool {
    let fields = params.pointer("/requestedSchema/properties").and_then(Value::as_object);
    text(params, "/mode") == "form" && fields.is_none_or(Map::is_empty)
}

fn choice(option: &Value) -> QuestionOption {
    QuestionOption {
        label: text(option, "/label").to_owned(),
        description: some(option, "/description").map(str::to_owned),
    }
}

fn refusals() -> [PermissionOption; 2] {
    [
        option("decline", "Reject", OptionKind::RejectOnce),
        option("cancel", "Reject and stop the turn", OptionKind::RejectOnce),
    ]
}

fn decision(id: &str, params: &Value) -> Value {
    match id {
        "accept" => json!("accept"),
        "accept-session" => json!("acceptForSession"),
        "accept-rule" => {
            let amendment = params.get("proposedExecpolicyAmendment").cloned().unwrap_or_default();
            json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": amendment}})
        }
        "cancel" => json!("cancel"),
        _ => json!("decline"),
    }
}
