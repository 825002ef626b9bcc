//! What the agent asks goes to the editor, and the editor's answers go to the machine. Others may answer first.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::body::{Answer, Content};
use ensemble_protocol::transcript::plain::question_of;
use ensemble_protocol::transcript::view::{Asks, Card, Shown};
use ensemble_protocol::transcript::words::Outcome;
use serde_json::{Value, json};

use super::Session;
use crate::core::blocks::{self, text};
use crate::core::markdown::fenced;
use crate::core::out::{Called, Out};

impl Session {
    /// Compares what the agent asks with what the editor is asked.
    pub(super) fn requests(&mut self, out: &mut Out) {
        let open: Vec<Card> = self.view.open().cloned().collect();
        let closed: Vec<String> =
            self.asked.keys().filter(|id| !open.iter().any(|card| card.request_id == **id)).cloned().collect();
        for id in closed {
            if let Some(call) = self.asked.remove(&id).flatten() {
                let why = self.why_closed(&id);
                out.withdraw(call, &why);
            }
        }
        for card in open {
            if !self.asked.contains_key(&card.request_id) {
                let call = self.ask(&card, out);
                self.asked.insert(card.request_id, call);
            }
        }
    }

    fn why_closed(&self, request_id: &str) -> String {
        let resolved = self.view.items().rev().find_map(|item| match &item.shown {
            Shown::Card(card) if card.request_id == request_id => card.resolved.clone(),
            _ => None,
        });
        match resolved {
            Some(resolved) if resolved.outcome != Outcome::Withdrawn => {
                let who = resolved.by.map_or_else(|| "someone".to_owned(), |by| self.name(by));
                let what = resolved.option_id.map(|option| format!(": {option}")).unwrap_or_default();
                format!("{who} answered before{what}")
            }
            Some(resolved) => {
                format!("it was withdrawn: {}", resolved.reason.as_deref().unwrap_or("no one is asked any more"))
            }
            None => "it is closed".to_owned(),
        }
    }

    fn ask(&mut self, card: &Card, out: &mut Out) -> Option<u64> {
        let (method, mut params) = match &card.asks {
            Asks::Permission(permission) => {
                ("session/request_permission", blocks::permission(permission, &card.request_id))
            }
            Asks::Question(question) if out.editor.forms => ("elicitation/create", blocks::form(question)),
            Asks::Question(_) => {
                let text = format!("{}\n\n{}", fenced(&question_of(card)), self.how_to_answer(&card.request_id));
                self.text_of_ours(out, &text);
                return None;
            }
        };
        if let Some(fields) = params.as_object_mut() {
            fields.insert("sessionId".to_owned(), json!(self.id));
        }
        let (request_id, digest) = (card.request_id.clone(), card.digest.clone());
        Some(out.call(Called { session: self.id, request_id, digest, closed: None }, method, &params))
    }

    fn how_to_answer(&self, request_id: &str) -> String {
        let reference = &self.opening.reference;
        format!(
            "Answer it in `ensemble attach {reference}`, or with `ensemble answer {reference} --request {request_id} …`."
        )
    }

    /// The editor has answered.
    pub(in crate::core) fn answered(&mut self, called: Called, result: Result<Value, Value>, out: &mut Out) {
        let result = result.unwrap_or_default();
        let (outcome, option) = (text(&result, "/outcome/outcome"), text(&result, "/outcome/optionId"));
        let action = text(&result, "/action");
        let is_answer = outcome == "selected" || matches!(action, "accept" | "decline");
        let card = self.view.open().find(|card| card.request_id == called.request_id).cloned();
        let Some(card) = card.filter(|_| called.closed.is_none()) else {
            if is_answer {
                let why = called.closed.unwrap_or_else(|| self.why_closed(&called.request_id));
                self.note(out, &format!("Your answer came too late and does not count (superseded): {why}."));
            }
            return;
        };
        // Not asked again until the machine has confirmed or refused it.
        self.asked.insert(called.request_id.clone(), None);
        let Called { request_id, digest, .. } = called;
        let empty = Answer { request_id: request_id.clone(), digest, option_id: None, answers: None, message: None };
        let answer = match &card.asks {
            Asks::Permission(permission) => {
                let is_offered = permission.options.iter().any(|offered| offered.option_id == option);
                (outcome == "selected" && is_offered).then(|| Answer { option_id: Some(option.to_owned()), ..empty })
            }
            Asks::Question(question) if action == "accept" => {
                let answers = question
                    .questions
                    .iter()
                    .filter_map(|item| Some((item.id.clone(), values(result.pointer("/content")?.get(&item.id)?))));
                let answers: BTreeMap<String, Vec<String>> = answers.collect();
                Some(Answer { answers: Some(answers), ..empty })
            }
            // Without answers: the person does not answer.
            Asks::Question(_) => (action == "decline").then_some(empty),
        };
        match answer {
            Some(answer) => {
                let local_id = self.send(Content::Answer(answer), out);
                self.wait_for_answer(local_id, request_id, out);
            }
            // The turn may be about to be cancelled, which closes the request.
            None => self.wait_for_close(request_id, out),
        }
    }

    /// The editor gave no answer, and the request is open still.
    pub(super) fn not_answered(&mut self, request_id: &str, out: &mut Out) {
        if !self.is_cancelling() && self.view.open().any(|card| card.request_id == request_id) {
            let how = self.how_to_answer(request_id);
            self.note(out, &format!("The agent still waits for an answer. {how}"));
        }
    }
}

/// ACP's `ElicitationContentValue` as texts.
fn values(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(all) => all.iter().flat_map(values).collect(),
        Value::Null | Value::Object(_) => Vec::new(),
        other => vec![other.to_string()],
    }
}
