//! Permissions, plans and questions: `can_use_tool` and its answers.

use ensemble_protocol::transcript::body::{Diff, QuestionItem, QuestionOption, ToolContent};
use ensemble_protocol::transcript::words::{OptionKind, ToolKind};
use serde_json::{Map, Value, json};

use super::Claude;
use super::suggestions::suggestions;
use super::tool::{kind, title};
use crate::command::{Refused, Reply};
use crate::core::{Wish, option, whole_input};
use crate::json::{is_true, list, some, text};

/// What is remembered of a request: what was shown is what is sent back.
#[derive(Debug)]
pub(super) struct About {
    input: Value,
    /// The suggestion behind each option "always".
    always: Vec<(String, Value)>,
    /// The texts of the questions, in their order.
    questions: Option<Vec<String>>,
}

const ALLOW: &str = "allow";
const REJECT: &str = "reject";
const REJECT_AND_STOP: &str = "reject-and-stop";

impl Claude {
    pub(super) fn request(&mut self, event: &Value) {
        let id = event.get("request_id").cloned().unwrap_or_default();
        let request = event.get("request").unwrap_or(&Value::Null);
        if !id.is_string() {
            self.core.note("The agent sent a request without an id.");
            return;
        }
        if text(request, "/subtype") != "can_use_tool" {
            let error = "this client does not know the request";
            self.core.write(&json!({
                "type": "control_response", "response": {"subtype": "error", "request_id": id, "error": error},
            }));
            return;
        }
        self.begin();
        match text(request, "/tool_name") {
            "AskUserQuestion" if list(request, "/input/questions").next().is_some() => self.asks(&id, request),
            name => self.wants(&id, request, name),
        }
    }

    fn asks(&mut self, id: &Value, request: &Value) {
        let questions: Vec<QuestionItem> = list(request, "/input/questions")
            .enumerate()
            .map(|(number, question)| {
                let options: Vec<_> = list(question, "/options")
                    .map(|option| QuestionOption {
                        label: text(option, "/label").to_owned(),
                        description: some(option, "/description").map(str::to_owned),
                    })
                    .collect();
                QuestionItem {
                    id: number.to_string(),
                    text: text(question, "/question").to_owned(),
                    header: some(question, "/header").map(str::to_owned),
                    options: Some(options).filter(|options| !options.is_empty()),
                    multiple: is_true(question, "/multiSelect"),
                }
            })
            .collect();
        let texts = questions.iter().map(|question| question.text.clone()).collect();
        let input = request.get("input").cloned().unwrap_or_default();
        let about = About { input, always: Vec::new(), questions: Some(texts) };
        let tool = some(request, "/tool_use_id").map(str::to_owned);
        self.core.question(id, request, tool, questions, about);
    }

    fn wants(&mut self, id: &Value, request: &Value, name: &str) {
        let input = request.get("input").cloned().unwrap_or_default();
        let (detail, allow) = match some(&input, "/plan").filter(|_| name == "ExitPlanMode") {
            Some(_) => (whole_input(&["plan"], &input), "Accept the plan"),
            None => {
                let mut detail = format!("{name}\n{}", whole_input(&["command", "file_path"], &input));
                for field in ["blocked_path", "decision_reason"] {
                    if let Some(value) = some(request, &format!("/{field}")) {
                        detail.push_str(&format!("\n({field}: {value})"));
                    }
                }
                (detail, "Allow once")
            }
        };
        let mut options = vec![option(ALLOW, allow, OptionKind::AllowOnce)];
        let always: Vec<(String, Value)> = suggestions(request)
            .enumerate()
            .map(|(number, (name, suggestion))| {
                let id = format!("always-{number}");
                options.push(option(&id, name, OptionKind::AllowAlways));
                (id, suggestion.clone())
            })
            .collect();
        options.push(option(REJECT, "Reject", OptionKind::RejectOnce));
        options.push(option(REJECT_AND_STOP, "Reject and stop the turn", OptionKind::RejectOnce));
        let wish = Wish {
            tool_call_id: some(request, "/tool_use_id").map(str::to_owned),
            title: title(name, &input),
            detail,
            content: if kind(name) == ToolKind::Edit { diffs(&input) } else { Vec::new() },
            options,
            input: input.clone(),
        };
        self.core.ask(id, request, wish, About { input, always, questions: None });
    }

    pub(super) fn reply(&mut self, request: &str, reply: &Reply) -> Result<(), Refused> {
        let asked = self.core.asked.get(request).ok_or(Refused::Closed)?;
        let answer = match (&asked.about.questions, reply) {
            (None, Reply::Option { id, message }) if asked.options.contains(id) => {
                decision(&asked.about, id, message.as_deref())
            }
            (Some(texts), Reply::Answers(answers)) => {
                let mut given = Map::new();
                for (id, chosen) in answers {
                    let number: usize = id.parse().map_err(|_| Refused::NoSuchOption)?;
                    let question = texts.get(number).ok_or(Refused::NoSuchOption)?;
                    given.insert(question.clone(), json!(chosen.join(", ")));
                }
                let mut input = asked.about.input.clone();
                if let Some(fields) = input.as_object_mut() {
                    fields.insert("answers".to_owned(), Value::Object(given));
                }
                json!({"behavior": "allow", "updatedInput": input})
            }
            (Some(_), Reply::Refuse { message }) => {
                let message = message.as_deref().unwrap_or("The person did not answer the question.");
                json!({"behavior": "deny", "message": message})
            }
            _ => return Err(Refused::NoSuchOption),
        };
        let asked = self.core.answered(request)?;
        self.core.write(&json!({
            "type": "control_response",
            "response": {"subtype": "success", "request_id": asked.agent_id, "response": answer},
        }));
        Ok(())
    }
}

fn decision(about: &About, id: &str, message: Option<&str>) -> Value {
    let refusal = message.unwrap_or("The person did not allow this.");
    match id {
        REJECT => json!({"behavior": "deny", "message": refusal}),
        REJECT_AND_STOP => json!({"behavior": "deny", "message": refusal, "interrupt": true}),
        _ => {
            let chosen = about.always.iter().find(|(option, _)| option == id).map(|(_, suggestion)| suggestion);
            match chosen {
                Some(suggestion) => {
                    json!({"behavior": "allow", "updatedInput": about.input, "updatedPermissions": [suggestion]})
                }
                None => json!({"behavior": "allow", "updatedInput": about.input}),
            }
        }
    }
}

/// The pieces that an edit replaces. The request has no whole file; the host computes the whole difference.
fn diffs(input: &Value) -> Vec<ToolContent> {
    let path = text(input, "/file_path");
    let one = |edit: &Value| {
        let (old, new) = (edit.get("old_string")?.as_str()?, edit.get("new_string")?.as_str()?);
        let (path, old_text) = (path.to_owned(), Some(old.to_owned()));
        Some(ToolContent::Diff(Diff { path, old_text, new_text: new.to_owned(), line: None, cut: None }))
    };
    one(input).into_iter().chain(list(input, "/edits").filter_map(one)).collect()
}
