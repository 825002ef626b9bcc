//! The three wire formats. Each reads the texts of a request and writes an answer in its own frames.

mod anthropic;
mod google;
mod openai;

use std::time::{SystemTime, UNIX_EPOCH};

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use serde_json::Value;

use crate::model::answer::{Answer, Ending};
use crate::model::directive::{self, Directive};
use crate::model::server::{ModelRequest, RequestLog};

/// The wire format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Anthropic,
    OpenAi,
    Google,
}

pub(crate) fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/v1/messages", web::post().to(anthropic::messages))
        .route("/v1/messages/count_tokens", web::post().to(anthropic::count_tokens))
        .route("/v1/responses", web::post().to(openai::responses))
        .route("/v1/models", web::get().to(openai::models))
        .route("/v1beta/models/{call}", web::post().to(google::call));
}

/// What the model does, without the details of the directive.
enum Move {
    /// Text in these pieces, then the ending.
    Text(Vec<String>, Ending),
    /// A refusal, optionally after some text.
    Refusal(Option<String>),
    /// A shell command.
    Command(String),
    /// Any tool: its name and input.
    Tool(String, Value),
    Failure(StatusCode),
    /// The usage limit is reached until this time, in seconds since 1970.
    Limit(u64),
}

/// Records the request and decides how to answer it.
fn decide(log: &RequestLog, request: ModelRequest) -> (Move, bool) {
    let (wanted, split) = directive::of(&request.user_messages);
    let result = request.tool_results.last().cloned();
    log.record(request);
    let next = match wanted {
        Directive::Say(text) => Move::Text(vec![text], Ending::Whole),
        Directive::Repeat(times, text) => Move::Text(vec![text; times], Ending::Whole),
        Directive::Refuse => Move::Refusal(None),
        Directive::RefuseLate => Move::Refusal(Some("I begin".to_owned())),
        Directive::Fail(status) => {
            Move::Failure(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }
        Directive::Limit(seconds) => Move::Limit(now() + seconds),
        Directive::Hang => Move::Text(vec!["I begin".to_owned()], Ending::Hangs),
        Directive::Drop => Move::Text(vec!["I begin".to_owned()], Ending::Drops),
        Directive::Tool(name, input) => match result {
            None => Move::Tool(name, input),
            Some(_) => Move::Text(vec!["The tool was called.".to_owned()], Ending::Whole),
        },
        Directive::Run(command) => match result {
            None => Move::Command(command),
            Some(result) => Move::Text(vec![format!("The command gave: {result}")], Ending::Whole),
        },
    };
    (next, split)
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the agents compare the end of a limit with their own clock")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn streamed(frames: Vec<String>, ending: Ending, split: bool) -> HttpResponse {
    Answer { frames, ending, split }.respond()
}

/// Collects the texts of a JSON value that is a string, or a list of parts with a `text`.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => parts.iter().flat_map(texts).collect(),
        Value::Object(part) => part.get("text").map(texts).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
