//! Google's Gemini API, as `gemini` uses it.

use actix_web::{HttpResponse, web};
use serde_json::{Value, json};

use super::{Api, Move, decide, list, streamed, text_at, texts};
use crate::model::answer::Ending;
use crate::model::server::{ModelRequest, RequestLog};

/// `<model>:streamGenerateContent`, `<model>:generateContent` or `<model>:countTokens`.
pub(super) async fn call(log: web::Data<RequestLog>, call: web::Path<String>, body: web::Bytes) -> HttpResponse {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return HttpResponse::BadRequest().finish();
    };
    let (model, verb) = call.split_once(':').unwrap_or((call.as_str(), ""));
    if verb == "countTokens" {
        return HttpResponse::Ok().json(json!({"totalTokens": 10}));
    }
    if let Some(schema) = request.pointer("/generationConfig/responseJsonSchema") {
        // The program asks which model suits the prompt. Any value of the right shape is accepted.
        let answer = fitting(schema).to_string();
        return HttpResponse::Ok().json(candidate(&json!({"text": answer}), Some("STOP")));
    }
    let (next, split) = decide(&log, read(model, &request));
    if let Move::Failure(status) = next {
        return HttpResponse::build(status).json(json!({
            "error": {"code": status.as_u16(), "status": "INVALID_ARGUMENT", "message": "the stand-in was asked to fail"},
        }));
    }
    if let Move::Limit(_) = next {
        return HttpResponse::TooManyRequests().json(json!({"error": {
            "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "the stand-in was asked to be at its limit",
            "details": [{
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
            }],
        }}));
    }
    let (chunks, ending) = chunks(&next);
    if verb == "streamGenerateContent" {
        streamed(chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect(), ending, split)
    } else {
        HttpResponse::Ok().json(whole(&next))
    }
}

fn read(model: &str, request: &Value) -> ModelRequest {
    let mut found =
        ModelRequest { api: Api::Google, model: model.to_owned(), user_messages: Vec::new(), tool_results: Vec::new() };
    for content in list(request, "/contents").filter(|content| text_at(content, "/role") == "user") {
        // Results belong to what was said before.
        let results = list(content, "/parts").filter_map(|part| part.pointer("/functionResponse/response"));
        found.tool_results.extend(results.map(|response| match response.get("output").and_then(Value::as_str) {
            Some(output) => output.to_owned(),
            None => response.to_string(),
        }));
        found.user_said(content.get("parts").map(texts).unwrap_or_default());
    }
    found
}

/// The simplest value that fits a JSON schema.
fn fitting(schema: &Value) -> Value {
    if let Some(first) = list(schema, "/enum").next() {
        return first.clone();
    }
    match text_at(schema, "/type") {
        "object" => {
            let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
            properties.map(|(name, property)| (name.clone(), fitting(property))).collect()
        }
        "string" => json!("because"),
        "boolean" => json!(true),
        "array" => json!([]),
        _ => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
    }
}

fn chunks(next: &Move) -> (Vec<Value>, Ending) {
    match next {
        Move::Text(pieces, ending) => {
            let mut chunks: Vec<Value> = pieces.iter().map(|piece| candidate(&json!({"text": piece}), None)).collect();
            if *ending == Ending::Whole {
                chunks.push(candidate(&json!({"text": ""}), Some("STOP")));
            }
            (chunks, *ending)
        }
        Move::Refusal(Some(text)) => {
            let begun = candidate(&json!({"text": text}), None);
            (vec![begun, candidate(&json!({"text": ""}), Some("SAFETY"))], Ending::Whole)
        }
        other => (vec![whole(other)], Ending::Whole),
    }
}

fn whole(next: &Move) -> Value {
    match next {
        Move::Text(pieces, _) => candidate(&json!({"text": pieces.concat()}), Some("STOP")),
        Move::Command(command) => {
            let args = json!({"command": command, "description": "As the prompt said"});
            candidate(&json!({"functionCall": {"name": "run_shell_command", "args": args}}), Some("STOP"))
        }
        Move::Tool(name, input) => candidate(&json!({"functionCall": {"name": name, "args": input}}), Some("STOP")),
        Move::Refusal(_) | Move::Failure(_) | Move::Limit(_) => json!({
            "promptFeedback": {"blockReason": "SAFETY"},
            "candidates": [{"index": 0, "finishReason": "SAFETY", "content": {"role": "model", "parts": []}}],
            "usageMetadata": usage(),
        }),
    }
}

fn candidate(part: &Value, finish: Option<&str>) -> Value {
    let content = json!({"role": "model", "parts": [part]});
    let candidate = match finish {
        Some(reason) => json!({"index": 0, "content": content, "finishReason": reason}),
        None => json!({"index": 0, "content": content}),
    };
    json!({"candidates": [candidate], "usageMetadata": usage(), "modelVersion": "stand-in", "responseId": "standin"})
}

fn usage() -> Value {
    json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15})
}
