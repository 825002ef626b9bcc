//! Anthropic's Messages API, as `claude` uses it.

use actix_web::{HttpResponse, web};
use serde_json::{Value, json};

use super::{Api, Move, decide, list, streamed, text_at, texts};
use crate::model::answer::Ending;
use crate::model::server::{ModelRequest, RequestLog};

pub(super) async fn messages(log: web::Data<RequestLog>, body: web::Bytes) -> HttpResponse {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return HttpResponse::BadRequest().finish();
    };
    let model = text_at(&request, "/model").to_owned();
    let (next, split) = decide(&log, read(&request));
    if let Move::Failure(status) = next {
        return HttpResponse::build(status).json(json!({
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "the stand-in was asked to fail"},
        }));
    }
    if let Move::Limit(ends) = next {
        // A subscription's limit is in the headers. With a key the program does not read them.
        return HttpResponse::TooManyRequests()
            .insert_header(("anthropic-ratelimit-unified-status", "rejected"))
            .insert_header(("anthropic-ratelimit-unified-reset", ends.to_string()))
            .insert_header(("anthropic-ratelimit-unified-representative-claim", "five_hour"))
            .insert_header(("x-should-retry", "false"))
            .json(json!({
                "type": "error",
                "error": {"type": "rate_limit_error", "message": "the stand-in was asked to be at its limit"},
            }));
    }
    let reply = Reply { model, next, number: list(&request, "/messages").count() };
    if request.get("stream").and_then(Value::as_bool) == Some(true) {
        let (frames, ending) = reply.frames();
        streamed(frames, ending, split)
    } else {
        HttpResponse::Ok().json(reply.message(&reply.content(), Some(reply.stop_reason())))
    }
}

pub(super) async fn count_tokens() -> HttpResponse {
    HttpResponse::Ok().json(json!({"input_tokens": 10}))
}

fn read(request: &Value) -> ModelRequest {
    let mut found = ModelRequest {
        api: Api::Anthropic,
        model: text_at(request, "/model").to_owned(),
        user_messages: Vec::new(),
        tool_results: Vec::new(),
    };
    for message in list(request, "/messages").filter(|message| text_at(message, "/role") == "user") {
        let Some(content) = message.get("content") else { continue };
        // Results are first in a message: they belong to what was said before.
        let results = list(message, "/content").filter(|part| text_at(part, "/type") == "tool_result");
        found.tool_results.extend(results.filter_map(|part| part.get("content")).map(|result| texts(result).concat()));
        found.user_said(texts(content));
    }
    found
}

struct Reply {
    model: String,
    next: Move,
    /// Of the messages before it. claude takes messages and calls with the same id for the same ones.
    number: usize,
}

impl Reply {
    fn stop_reason(&self) -> &'static str {
        match &self.next {
            Move::Text(..) => "end_turn",
            Move::Command(_) | Move::Tool(..) => "tool_use",
            Move::Refusal(_) | Move::Failure(_) | Move::Limit(_) => "refusal",
        }
    }

    fn content(&self) -> Value {
        match &self.next {
            Move::Text(pieces, _) => json!([{"type": "text", "text": pieces.concat()}]),
            Move::Command(command) => json!([self.call("Bash", &bash(command))]),
            Move::Tool(name, input) => json!([self.call(name, input)]),
            Move::Refusal(Some(text)) => json!([{"type": "text", "text": text}]),
            Move::Refusal(None) | Move::Failure(_) | Move::Limit(_) => json!([]),
        }
    }

    fn message(&self, content: &Value, stop_reason: Option<&str>) -> Value {
        json!({
            "id": format!("msg_standin_{}", self.number), "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop_reason, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 5},
        })
    }

    fn call(&self, name: &str, input: &Value) -> Value {
        json!({"type": "tool_use", "id": format!("toolu_standin_{}", self.number), "name": name, "input": input})
    }

    fn call_frames(&self, name: &str, input: &Value) -> [String; 3] {
        let piece = json!({"type": "input_json_delta", "partial_json": input.to_string()});
        [opens(&self.call(name, &json!({}))), delta(&piece), closes()]
    }

    fn frames(&self) -> (Vec<String>, Ending) {
        let message = self.message(&json!([]), None);
        let mut frames = vec![frame(&json!({"type": "message_start", "message": message}))];
        match &self.next {
            Move::Text(pieces, ending) => {
                frames.push(opens(&json!({"type": "text", "text": ""})));
                frames.extend(pieces.iter().map(|piece| delta(&json!({"type": "text_delta", "text": piece}))));
                if *ending != Ending::Whole {
                    return (frames, *ending);
                }
                frames.push(closes());
            }
            Move::Command(command) => frames.extend(self.call_frames("Bash", &bash(command))),
            Move::Tool(name, input) => frames.extend(self.call_frames(name, input)),
            Move::Refusal(Some(text)) => {
                frames.push(opens(&json!({"type": "text", "text": ""})));
                frames.push(delta(&json!({"type": "text_delta", "text": text})));
                frames.push(closes());
            }
            Move::Refusal(None) | Move::Failure(_) | Move::Limit(_) => {}
        }
        frames.push(frame(&json!({
            "type": "message_delta",
            "delta": {"stop_reason": self.stop_reason(), "stop_sequence": null},
            "usage": {"output_tokens": 5},
        })));
        frames.push(frame(&json!({"type": "message_stop"})));
        (frames, Ending::Whole)
    }
}

fn bash(command: &str) -> Value {
    json!({"command": command, "description": "As the prompt said"})
}

fn closes() -> String {
    frame(&json!({"type": "content_block_stop", "index": 0}))
}

fn opens(block: &Value) -> String {
    frame(&json!({"type": "content_block_start", "index": 0, "content_block": block}))
}

fn delta(delta: &Value) -> String {
    frame(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
}

fn frame(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", text_at(data, "/type"))
}
