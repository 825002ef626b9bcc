//! Events in one line each, to compare them.

use ensemble_agent::{Event, PartKind};
use ensemble_protocol::transcript::body::{Block, ToolContent};

/// The event in one line. Texts that grow are left out: how they are cut depends on time.
pub(crate) fn line(event: &Event) -> Option<String> {
    Some(match event {
        Event::Delta { .. } | Event::ToolOutput { .. } => return None,
        Event::Ready { .. } => "ready".to_owned(),
        Event::ResumeFailed(_) => "resume failed".to_owned(),
        Event::Taken(id) => format!("taken {id}"),
        Event::TurnStarted(cause) => format!("turn started: {}", cause.as_str()),
        Event::TurnEnded { stop, usage, cost_usd } => {
            let usage = usage.map(|usage| format!(", {} in, {} out", usage.input_tokens, usage.output_tokens));
            let cost = cost_usd.map(|cost| format!(", {cost:.6} $")).unwrap_or_default();
            format!("turn ended: {}{}{cost}", stop.as_str(), usage.unwrap_or_default())
        }
        Event::Complete { part, of, kind, text, interrupted, parent } => {
            let kind = if *kind == PartKind::Text { "text" } else { "thought" };
            let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
            let end = if *interrupted { " (interrupted)" } else { "" };
            let parent = parent.as_ref().map(|parent| format!(" in {parent}")).unwrap_or_default();
            format!("{kind} {part}{of}{parent}{end}: {text:?}")
        }
        Event::Tool(call) => {
            let word = |word: Option<&str>| word.unwrap_or("-").to_owned();
            let kind = word(call.kind.as_ref().map(|kind| kind.as_str()));
            let status = word(call.status.as_ref().map(|status| status.as_str()));
            let content: Vec<String> = call.content.iter().flatten().map(content).collect();
            let places: Vec<&str> = call.locations.iter().flatten().map(|place| place.path.as_str()).collect();
            format!("tool {kind} {status} {:?} {places:?} {content:?}", call.title.as_deref().unwrap_or("-"))
        }
        Event::Plan(plan) => {
            let entries: Vec<String> =
                plan.entries.iter().map(|entry| format!("{} ({})", entry.content, entry.status.as_str())).collect();
            format!("plan: {}", entries.join(", "))
        }
        Event::Permission(asked) => {
            let options: Vec<String> = asked
                .options
                .iter()
                .map(|one| format!("{} [{}] {:?}", one.option_id, one.kind.as_str(), one.name))
                .collect();
            let content: Vec<String> = asked.content.iter().map(content).collect();
            format!(
                "permission {} {:?}: {:?} {content:?}; {}",
                asked.request,
                asked.title,
                asked.detail,
                options.join(", ")
            )
        }
        Event::Question(asked) => {
            let one = |question: &ensemble_protocol::transcript::body::QuestionItem| {
                let options: Vec<&str> =
                    question.options.iter().flatten().map(|option| option.label.as_str()).collect();
                format!("{} {:?} {options:?}", question.id, question.text)
            };
            let questions: Vec<String> = asked.questions.iter().map(one).collect();
            format!("question {}: {}", asked.request, questions.join(", "))
        }
        Event::Withdrawn { request, reason } => format!("withdrawn {request}: {reason}"),
        Event::State(change) => {
            let mut parts = Vec::new();
            parts.extend(change.mode.as_ref().map(|mode| format!("mode {}", mode.as_str())));
            parts.extend(change.model.as_ref().map(|model| format!("model {model}")));
            parts.extend(change.modes.as_ref().map(|modes| {
                let ids: Vec<&str> = modes.iter().map(|mode| mode.id.as_str()).collect();
                format!("modes {}", ids.join(" "))
            }));
            parts.extend(change.models.as_ref().map(|_| "models".to_owned()));
            parts.extend(change.commands.as_ref().map(|_| "commands".to_owned()));
            parts.extend(change.context.map(|_| "context".to_owned()));
            parts.extend(change.still_running.as_ref().map(|commands| format!("still running {commands:?}")));
            format!("state: {}", parts.join(", "))
        }
        Event::Failure { code, text, retry_at } => {
            format!("failure {}{}: {text:?}", code.as_str(), if retry_at.is_some() { ", with a time" } else { "" })
        }
        Event::Retrying { code, .. } => format!("retrying: {}", code.as_str()),
        Event::Raw(text) => format!("raw: {text:?}"),
        Event::Answer(answer) => format!("answer: {answer:?}"),
        Event::Denied { tool, detail } => format!("denied {tool}: {detail}"),
        Event::Note(note) => format!("note: {note}"),
        Event::Cost(usd) => format!("cost so far: {usd}"),
    })
}

fn content(content: &ToolContent) -> String {
    match content {
        ToolContent::Content { content: Block::Text { text }, cut } => format!("text {text:?}{}", cut_of(*cut)),
        ToolContent::Diff(diff) => {
            format!("diff {} {:?} -> {:?}{}", diff.path, diff.old_text, diff.new_text, cut_of(diff.cut))
        }
        ToolContent::Terminal(terminal) => format!("terminal {:?}{}", terminal.output, cut_of(terminal.cut)),
        _ => "something newer".to_owned(),
    }
}

fn cut_of(cut: Option<u64>) -> String {
    cut.map(|cut| format!(" ({cut} bytes are missing)")).unwrap_or_default()
}
