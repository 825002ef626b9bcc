//! Between ACP's shapes and those of the transcript: prompts, calls of tools, plans, commands, modes and models.

use ensemble_protocol::transcript::body::{
    Attachment, Block, Choice, Permission, Plan, Prompt, Question, Resource, State, ToolCall, ToolContent,
};
use ensemble_protocol::transcript::bounds::MOST_ATTACHMENTS;
use ensemble_protocol::transcript::visible;
use ensemble_protocol::transcript::words::{OptionKind, PlanPriority, PlanStatus, ToolKind, ToolStatus, When};
use serde_json::{Map, Value, json};

use super::markdown::{escaped, fenced, quoted};
use crate::rpc::{Error, PARAMS};

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// The prompt that these content blocks are.
pub(super) fn prompt(blocks: &Value) -> Result<Prompt, Error> {
    let wrong = |text: &str| Error::new(PARAMS, text);
    let blocks = blocks.as_array().ok_or_else(|| wrong("`prompt` is a list of content blocks."))?;
    let (mut words, mut attachments) = (String::new(), Vec::new());
    for block in blocks {
        match text(block, "/type") {
            "text" => words.push_str(text(block, "/text")),
            // The agent may be on another machine: it gets the name, not the content.
            "resource_link" => words.push_str(&format!("[@{}]({})", text(block, "/name"), text(block, "/uri"))),
            "image" => attachments.push(image(text(block, "/mimeType"), text(block, "/data"))?),
            "resource" => attachments.push(resource(block.get("resource").unwrap_or(&Value::Null))?),
            "audio" => return Err(wrong("Audio cannot be part of a prompt.")),
            _ => return Err(wrong("The prompt has a content block of an unknown type.")),
        }
    }
    if words.trim().is_empty() && attachments.is_empty() {
        return Err(wrong("The prompt is empty."));
    }
    if attachments.iter().map(Attachment::size).sum::<usize>() > MOST_ATTACHMENTS {
        return Err(wrong(
            "The images and files of the prompt have more than 512 KiB. Leave some out, or make them smaller.",
        ));
    }
    Ok(Prompt { text: words, attachments, when: When::Next, directory: None })
}

fn image(mime_type: &str, data: &str) -> Result<Attachment, Error> {
    if !mime_type.starts_with("image/") || data.is_empty() {
        return Err(Error::new(PARAMS, "An image has the type `image/…` and its data in base64."));
    }
    Ok(Attachment::Image { mime_type: mime_type.to_owned(), data: data.to_owned() })
}

fn resource(resource: &Value) -> Result<Attachment, Error> {
    let (uri, mime_type) = (text(resource, "/uri").to_owned(), text(resource, "/mimeType").to_owned());
    match (resource.get("text").and_then(Value::as_str), resource.get("blob").and_then(Value::as_str)) {
        (Some(text), _) => {
            let mime_type = Some(mime_type).filter(|mime_type| !mime_type.is_empty());
            Ok(Attachment::Resource { resource: Resource { uri, mime_type, text: text.to_owned() } })
        }
        (None, Some(blob)) if mime_type.starts_with("image/") => image(&mime_type, blob),
        _ => Err(Error::new(PARAMS, "A file in a prompt must be a text or an image.")),
    }
}

/// A prompt as content blocks, for editors that did not send it. What one person writes cannot look like another person's.
pub(super) fn prompt_blocks(prompt: &Prompt, by: Option<&str>) -> Vec<Value> {
    let words = match by {
        Some(by) => format!("**{}:**\n{}", escaped(by), quoted(&prompt.text)),
        None => prompt.text.clone(),
    };
    let files = prompt.attachments.iter().filter(|attachment| !matches!(attachment, Attachment::Newer));
    std::iter::once(text_block(&words)).chain(files.map(|file| json!(file))).collect()
}

/// The fields of ACP's `ToolCall`.
pub(super) fn tool_call(call: &ToolCall) -> Map<String, Value> {
    let title = call.title.as_deref().map_or_else(|| "A tool".into(), visible);
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    put("toolCallId", json!(call.tool_call_id));
    put("title", json!(title));
    put("kind", json!(kind(call.kind.as_ref())));
    put("status", json!(status(call.status.as_ref())));
    if let Some(places) = &call.locations {
        put("locations", json!(places));
    }
    if let Some(content) = &call.content {
        let mut shown = contents(content, is_plain(call.kind.as_ref()));
        if call.status == Some(ToolStatus::Interrupted) {
            shown.push(content_text("(It was interrupted before it had an end.)"));
        }
        put("content", json!(shown));
    }
    fields
}

fn kind(kind: Option<&ToolKind>) -> &str {
    match kind {
        None | Some(ToolKind::Other(_)) => "other",
        Some(kind) => kind.as_str(),
    }
}

fn status(status: Option<&ToolStatus>) -> &str {
    match status {
        Some(ToolStatus::InProgress | ToolStatus::Completed | ToolStatus::Failed) => {
            status.map_or("pending", ToolStatus::as_str)
        }
        Some(ToolStatus::Interrupted) => "failed",
        _ => "pending",
    }
}

/// What these tools produce is no Markdown.
pub(super) fn is_plain(kind: Option<&ToolKind>) -> bool {
    matches!(kind, Some(ToolKind::Execute | ToolKind::Read | ToolKind::Search))
}

pub(super) fn content_text(text: &str) -> Value {
    json!({"type": "content", "content": text_block(text)})
}

pub(super) fn contents(content: &[ToolContent], is_plain: bool) -> Vec<Value> {
    let mut shown = Vec::with_capacity(content.len());
    for one in content {
        let cut = match one {
            ToolContent::Content { content: Block::Text { text }, cut } => {
                let text = if is_plain && !text.is_empty() { fenced(text) } else { text.clone() };
                shown.push(content_text(&text));
                cut
            }
            ToolContent::Diff(diff) => {
                shown.push(
                    json!({"type": "diff", "path": diff.path, "oldText": diff.old_text, "newText": diff.new_text}),
                );
                &diff.cut
            }
            ToolContent::Terminal(terminal) => {
                shown.push(content_text(&fenced(&terminal.output)));
                &terminal.cut
            }
            ToolContent::Content { .. } | ToolContent::Newer => {
                shown.push(content_text("(Something newer than this program.)"));
                &None
            }
        };
        if let Some(bytes) = cut {
            shown.push(content_text(&format!("({bytes} bytes more are not shown.)")));
        }
    }
    shown
}

/// ACP's `plan`.
pub(super) fn plan(plan: &Plan) -> Value {
    let entries = plan.entries.iter().map(|entry| {
        let priority = match &entry.priority {
            PlanPriority::Other(_) => "medium",
            known => known.as_str(),
        };
        let status = match &entry.status {
            PlanStatus::Other(_) => "pending",
            known => known.as_str(),
        };
        json!({"content": entry.content, "priority": priority, "status": status})
    });
    json!({"sessionUpdate": "plan", "entries": entries.collect::<Vec<_>>()})
}

pub(super) fn commands(state: &State) -> Value {
    let commands = state.commands.iter().map(|command| {
        let input = command.hint.as_ref().map(|hint| json!({"hint": hint}));
        json!({"name": command.name, "description": command.description, "input": input})
    });
    json!({"sessionUpdate": "available_commands_update", "availableCommands": commands.collect::<Vec<_>>()})
}

/// What a person reads. The machine names its modes by their words.
fn name(choice: &Choice) -> &str {
    match choice.id.as_str() {
        id if !choice.name.is_empty() && choice.name != id => &choice.name,
        "ask" => "Ask first",
        "edit" => "Edit files",
        "plan" => "Plan only",
        "bypass" => "Ask nothing",
        id => id,
    }
}

/// The chosen one is among the choices, also when the machine does not offer it.
fn choices(offered: &[Choice], chosen: &str, id: &str) -> Vec<Value> {
    let one = |value: &str, name: &str| {
        Value::Object(Map::from_iter([(id.to_owned(), json!(value)), ("name".to_owned(), json!(name))]))
    };
    let mut found: Vec<Value> = offered.iter().map(|choice| one(&choice.id, name(choice))).collect();
    if !chosen.is_empty() && !offered.iter().any(|choice| choice.id == chosen) {
        found.push(one(chosen, name(&Choice { id: chosen.to_owned(), name: String::new() })));
    }
    found
}

/// ACP's `configOptions`: the mode and the model, where they can be chosen. What was chosen just now may not be in the state yet.
pub(super) fn options(state: &State, mode: Option<&str>, model: Option<&str>) -> Value {
    let mut options = Vec::new();
    let mut add = |id: &str, name: &str, offered: &[Choice], chosen: &str| {
        if !offered.is_empty() && !chosen.is_empty() {
            options.push(json!({
                "id": id, "category": id, "name": name, "type": "select",
                "currentValue": chosen, "options": choices(offered, chosen, "value"),
            }));
        }
    };
    add("mode", "Mode", &state.modes, mode.unwrap_or(state.mode.as_str()));
    let first = state.models.first().map_or("", |model| model.id.as_str());
    add("model", "Model", &state.models, model.or(state.model.as_deref()).unwrap_or(first));
    json!(options)
}

/// What `session/new` and `session/load` say of a session. `models` is of a draft that some editors speak.
pub(super) fn offers(state: Option<&State>) -> Map<String, Value> {
    let mut fields = Map::new();
    let Some(state) = state else { return fields };
    if !state.modes.is_empty() {
        let modes = choices(&state.modes, state.mode.as_str(), "id");
        fields.insert("modes".to_owned(), json!({"currentModeId": state.mode, "availableModes": modes}));
    }
    if let Some(first) = state.models.first() {
        let model = state.model.as_deref().unwrap_or(&first.id);
        let models = choices(&state.models, model, "modelId");
        fields.insert("models".to_owned(), json!({"currentModelId": model, "availableModels": models}));
    }
    fields.insert("configOptions".to_owned(), options(state, None, None));
    fields
}

/// ACP's `session/request_permission`, but for the session.
pub(super) fn permission(permission: &Permission, request_id: &str) -> Value {
    let tool_call_id = permission.tool_call_id.as_deref().unwrap_or(request_id);
    let mut content = Vec::new();
    if !permission.detail.is_empty() {
        content.push(content_text(&fenced(&permission.detail)));
    }
    if let Some(bytes) = permission.cut {
        content.push(content_text(&format!("({bytes} bytes more do not fit here, so it can only be refused.)")));
    }
    content.extend(contents(&permission.content, true));
    let options = permission.options.iter().map(|option| {
        let kind = match &option.kind {
            // An option that may allow must not look like one that refuses.
            OptionKind::Other(_) => "allow_once",
            known => known.as_str(),
        };
        json!({"optionId": option.option_id, "name": visible(&option.name), "kind": kind})
    });
    json!({
        "toolCall": {
            "toolCallId": tool_call_id, "title": visible(&permission.title), "status": "pending", "content": content,
        },
        "options": options.collect::<Vec<_>>(),
    })
}

/// ACP's `elicitation/create` in the form mode, but for the session.
pub(super) fn form(question: &Question) -> Value {
    let mut properties = Map::new();
    for item in &question.questions {
        let offered: Vec<Value> = item
            .options
            .iter()
            .flatten()
            .map(|option| json!({"const": option.label, "title": option.label, "description": option.description}))
            .collect();
        let mut field = match (offered.is_empty(), item.multiple) {
            (true, _) => json!({"type": "string"}),
            (false, false) => json!({"type": "string", "oneOf": offered}),
            (false, true) => json!({"type": "array", "items": {"anyOf": offered}}),
        };
        if let Some(fields) = field.as_object_mut() {
            fields.insert("title".to_owned(), json!(item.header.as_deref().unwrap_or(&item.text)));
            fields.insert("description".to_owned(), json!(item.text));
        }
        properties.insert(item.id.clone(), field);
    }
    let required: Vec<&str> = question.questions.iter().map(|item| item.id.as_str()).collect();
    let texts: Vec<&str> = question.questions.iter().map(|item| item.text.as_str()).collect();
    json!({
        "mode": "form", "message": texts.join("\n"), "toolCallId": question.tool_call_id,
        "requestedSchema": {"type": "object", "properties": properties, "required": required},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_texts_links_images_and_files() {
        let blocks = json!([
            {"type": "text", "text": "Look at "}, {"type": "resource_link", "name": "a.rs", "uri": "file:///a.rs"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "b"}},
            {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA", "mimeType": "image/gif"}},
        ]);
        let found = prompt(&blocks).unwrap();
        assert_eq!((found.text.as_str(), found.attachments.len()), ("Look at [@a.rs](file:///a.rs)", 3));
        let shown = prompt_blocks(&found, Some("Ann"));
        assert_eq!(shown[0], text_block("**Ann:**\n> Look at [@a.rs](file:///a.rs)"));
        assert_eq!(shown[1], blocks[2]);
        assert_eq!(shown[2], blocks[3]);
    }

    #[test]
    fn what_cannot_be_sent_is_said() {
        let big = "A".repeat(MOST_ATTACHMENTS);
        for (blocks, why) in [
            (json!(null), "a list"),
            (json!([]), "empty"),
            (json!([{"type": "text", "text": " "}]), "empty"),
            (json!([{"type": "audio"}]), "Audio"),
            (json!([{"type": "image", "mimeType": "text/html", "data": "x"}]), "image/…"),
            (json!([{"type": "resource", "resource": {"uri": "x", "blob": "x"}}]), "a text or an image"),
            (json!([{"type": "image", "mimeType": "image/png", "data": big}]), "512 KiB"),
        ] {
            let error = prompt(&blocks).unwrap_err();
            assert!(error.code == PARAMS && error.text.contains(why), "{error:?}");
        }
    }

    #[test]
    fn a_tool_call_keeps_its_text_and_says_what_is_missing() {
        let call = ToolCall {
            tool_call_id: "c".into(),
            kind: Some(ToolKind::Execute),
            status: Some(ToolStatus::Interrupted),
            content: Some(vec![ToolContent::Content { content: Block::Text { text: "*x*".into() }, cut: Some(3) }]),
            ..ToolCall::default()
        };
        let shown = Value::Object(tool_call(&call));
        assert_eq!((&shown["status"], &shown["title"]), (&json!("failed"), &json!("A tool")));
        assert_eq!(shown["content"][0]["content"]["text"], "```\n*x*\n```");
        assert!(shown["content"].to_string().contains("3 bytes more"));
    }
}
