//! OpenAI's Responses API, as `codex` uses it.

use actix_web::{HttpResponse, web};
use serde_json::{Value, json};

use super::{Api, Move, decide, list, streamed, text_at, texts};
use crate::model::answer::Ending;
use crate::model::server::{ModelRequest, RequestLog};

pub(super) async fn responses(log: web::Data<RequestLog>, body: web::Bytes) -> HttpResponse {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return HttpResponse::BadRequest().finish();
    };
    let (next, split) = decide(&log, read(&request));
    if let Move::Failure(status) = next {
        return HttpResponse::build(status).json(json!({
            "error": {"type": "invalid_request_error", "code": "standin", "message": "the stand-in was asked to fail"},
        }));
    }
    if let Move::Limit(ends) = next {
        return HttpResponse::TooManyRequests().json(json!({"error": {
            "type": "usage_limit_reached", "message": "the stand-in was asked to be at its limit", "plan_type": "pro",
            "resets_at": ends,
        }}));
    }
    let (frames, ending) = frames(&next, &request);
    streamed(frames, ending, split)
}

pub(super) async fn models() -> HttpResponse {
    HttpResponse::Ok().json(json!({"object": "list", "data": [], "models": []}))
}

fn read(request: &Value) -> ModelRequest {
    let mut found = ModelRequest {
        api: Api::OpenAi,
        model: text_at(request, "/model").to_owned(),
        user_messages: Vec::new(),
        tool_results: Vec::new(),
    };
    for item in list(request, "/input") {
        if text_at(item, "/role") == "user" {
            found.user_said(item.get("content").map(texts).unwrap_or_default());
        }
        if text_at(item, "/type").ends_with("_call_output") {
            found.tool_results.extend(item.get("output").map(|output| texts(output).concat()));
        }
    }
    found
}

fn frames(next: &Move, request: &Value) -> (Vec<String>, Ending) {
    let mut frames = vec![frame(&json!({"type": "response.created", "response": {"id": "resp_standin"}}))];
    match next {
        Move::Text(pieces, ending) => {
            let item = json!({"type": "message", "role": "assistant", "id": "msg_standin", "content": []});
            frames.push(frame(&json!({"type": "response.output_item.added", "output_index": 0, "item": item})));
            frames.extend(pieces.iter().map(|piece| {
                frame(&json!({
                    "type": "response.output_text.delta", "item_id": "msg_standin", "output_index": 0,
                    "content_index": 0, "delta": piece,
                }))
            }));
            if *ending != Ending::Whole {
                return (frames, *ending);
            }
            frames.push(done(&message(&json!({"type": "output_text", "text": pieces.concat(), "annotations": []}))));
        }
        Move::Refusal(text) => {
            if let Some(text) = text {
                frames.push(done(&message(&json!({"type": "output_text", "text": text, "annotations": []}))));
            }
            frames.push(done(&message(&json!({"type": "refusal", "refusal": "I will not do that."}))));
            frames.push(frame(&json!({
                "type": "response.incomplete",
                "response": {"id": "resp_standin", "incomplete_details": {"reason": "content_filter"}},
            })));
            return (frames, Ending::Whole);
        }
        Move::Command(command) => frames.push(done(&call(command, request))),
        Move::Tool(name, input) => {
            let id = format!("call_standin_{}", list(request, "/input").count());
            // A tool whose input is no JSON has calls of another kind.
            frames.push(done(&match input {
                Value::String(text) => json!({"type": "custom_tool_call", "call_id": id, "name": name, "input": text}),
                input => {
                    let (namespace, name) =
                        name.split_once('/').map_or((None, &**name), |(first, rest)| (Some(first), rest));
                    json!({
                        "type": "function_call", "call_id": id, "name": name, "namespace": namespace,
                        "arguments": input.to_string(),
                    })
                }
            }));
        }
        Move::Failure(_) | Move::Limit(_) => {}
    }
    frames.push(frame(&json!({
        "type": "response.completed",
        "response": {"id": "resp_standin", "usage": {
            "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
        }},
    })));
    (frames, Ending::Whole)
}

fn message(content: &Value) -> Value {
    json!({"type": "message", "role": "assistant", "id": "msg_standin", "content": [content]})
}

/// The shell tool has several names and argument formats; the request contains those of the running version.
fn call(command: &str, request: &Value) -> Value {
    let names: Vec<&str> = list(request, "/tools").map(|tool| text_at(tool, "/name")).collect();
    let (name, arguments) = if names.contains(&"shell_command") {
        ("shell_command", json!({"command": command}))
    } else if names.contains(&"shell") {
        ("shell", json!({"command": ["sh", "-c", command]}))
    } else {
        // codex waits so long, at most, and then lets the command go on by itself.
        ("exec_command", json!({"cmd": command, "yield_time_ms": 30_000}))
    };
    let number = list(request, "/input").count();
    json!({"type": "function_call", "call_id": format!("call_standin_{number}"), "name": name, "arguments": arguments.to_string()})
}

fn done(item: &Value) -> String {
    frame(&json!({"type": "response.output_item.done", "output_index": 0, "item": item}))
}

fn frame(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", text_at(data, "/type"))
}
