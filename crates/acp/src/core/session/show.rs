//! What the machine and people have written, as updates for the editor.

use ensemble_protocol::transcript::Frame;
use ensemble_protocol::transcript::body::{Control, TextPart, ToolCall};
use ensemble_protocol::transcript::plain;
use ensemble_protocol::transcript::view::{Author, Item, Shown, Taken};
use ensemble_protocol::transcript::visible;
use ensemble_types::ids::UserId;
use serde_json::{Value, json};

use super::Session;
use crate::core::blocks::{self, content_text, text_block};
use crate::core::markdown::{escaped, fenced, quoted};
use crate::core::out::Out;
use crate::core::texts::Rest;

/// How many frames of a turn that has not begun yet are kept.
const MOST_EARLY: usize = 16;

impl Session {
    /// All that was said before.
    pub(super) fn show_all(&mut self, out: &mut Out) {
        if self.opening.is_cut {
            let rest =
                format!("What was said before is not shown here. `ensemble log {}` prints it.", self.opening.reference);
            self.text_of_ours(out, &rest);
        }
        let items: Vec<Item> = self.view.items().cloned().collect();
        for item in &items {
            self.next_item = item.id + 1;
            self.show(item, true, out);
        }
        self.plan(out);
    }

    pub(super) fn show(&mut self, item: &Item, is_new: bool, out: &mut Out) {
        match &item.shown {
            Shown::Prompt(_, taken) | Shown::Answer(_, taken) | Shown::Control(_, taken) if self.is_own(item) => {
                self.receipt(&item.local_id, taken, out);
            }
            Shown::Prompt(prompt, _) if is_new => {
                let by = self.other(item);
                for content in blocks::prompt_blocks(prompt, by.as_deref()) {
                    self.chunk(out, "user_message_chunk", content, &item.local_id);
                }
            }
            Shown::Prompt(_, Taken::Rejected { code, text }) => {
                let why = plain::rejection(code.as_ref(), text.as_deref());
                let by = self.who(&item.author);
                self.note(out, &format!("The machine did not take the prompt of {by}: {why}"));
            }
            Shown::Control(control, _) if is_new && self.is_open() => {
                self.control_of_others(control, item, out);
            }
            Shown::Turn(turn) => self.turn(turn, out),
            Shown::Text(part) if is_new => {
                // What a sub-agent writes is no answer to the person.
                let is_answer = part.parent_tool_call_id.is_none();
                self.whole(part, if is_answer { "agent_message_chunk" } else { "agent_thought_chunk" }, out);
            }
            Shown::Thought(part) if is_new => self.whole(part, "agent_thought_chunk", out),
            Shown::Tool(call) => self.tool(call, is_new, out),
            Shown::Error(failure) => self.failure(failure, out),
            Shown::Note(note) if is_new => {
                let note = plain::note(note, |user| self.name(user));
                self.note(out, &note);
            }
            Shown::Newer(name) if is_new => {
                self.note(out, &format!("{}: something newer than this program.", visible(name)));
            }
            // Requests are compared with what is open.
            _ => {}
        }
    }

    fn is_own(&self, item: &Item) -> bool {
        let is_mine = matches!(&item.author, Author::Person { key, .. } if *key == self.opening.key);
        is_mine && self.own.contains(&item.local_id)
    }

    pub(super) fn name(&self, user: UserId) -> String {
        if user == self.opening.user {
            return "you".to_owned();
        }
        self.names.get(&user).cloned().unwrap_or_else(|| user.to_string())
    }

    pub(super) fn who(&self, author: &Author) -> String {
        match author {
            Author::Person { user, .. } => self.name(*user),
            _ => "the machine".to_owned(),
        }
    }

    /// The name, unless it is known to be the person at the editor.
    fn other(&self, item: &Item) -> Option<String> {
        match (&item.author, item.unconfirmed) {
            (author, Some(list)) => Some(format!("{} ({})", self.who(author), plain::unconfirmed(list))),
            (Author::Person { user, .. }, None) if *user == self.opening.user => None,
            (author, None) => Some(self.who(author)),
        }
    }

    fn control_of_others(&mut self, control: &Control, item: &Item, out: &mut Out) {
        let what = match control {
            Control::Interrupt => "interrupted the turn".to_owned(),
            Control::Stop => "ended the session".to_owned(),
            Control::Resume(_) => "resumed the session".to_owned(),
            Control::SetMode(set) => format!("chose the mode {}", set.mode.as_str()),
            Control::SetModel(set) => format!("chose the model {}", set.model),
            // The prompt itself says so.
            Control::TakeBack(_) | Control::Access(_) | Control::Newer(_) => return,
        };
        let who = match self.who(&item.author).as_str() {
            "you" => "You, elsewhere,".to_owned(),
            who => who.to_owned(),
        };
        let doubt = item.unconfirmed.map(|list| format!(" ({})", plain::unconfirmed(list))).unwrap_or_default();
        self.note(out, &format!("{who} {what}{doubt}."));
    }

    fn chunk(&self, out: &mut Out, kind: &str, content: Value, message: &str) {
        out.update(self.id, &json!({"sessionUpdate": kind, "content": content, "messageId": message}));
    }

    fn whole(&mut self, part: &TextPart, kind: &str, out: &mut Out) {
        let message = format!("{}-{}", part.turn_id, part.of.unwrap_or(part.part));
        match self.texts.complete(part) {
            Rest::More(rest) if rest.is_empty() => {}
            Rest::More(rest) => self.chunk(out, kind, text_block(&rest), &message),
            Rest::Other(whole) => {
                self.text_of_ours(out, "The text above was not signed by the machine. This is what the agent wrote:");
                self.chunk(out, kind, text_block(&whole), &format!("{message}-signed"));
            }
        }
    }

    pub(super) fn frame(&mut self, frame: Frame, out: &mut Out) {
        if !self.is_open() {
            return;
        }
        if self.view.frame(&frame).live {
            return self.grow(&frame, out);
        }
        // Frames do not wait for the disk, so the first ones of a turn may be faster than its beginning.
        let newest = self.view.items().rev().find_map(|item| match &item.shown {
            Shown::Turn(turn) => Some(turn.turn_id.as_str()),
            _ => None,
        });
        if newest != Some(frame.turn_id.as_str()) {
            self.early.retain(|early| early.turn_id == frame.turn_id && early.part != frame.part);
            self.early.truncate(MOST_EARLY - 1);
            self.early.push(frame);
        }
    }

    /// Shows what came before its turn.
    pub(super) fn show_early(&mut self, out: &mut Out) {
        for frame in std::mem::take(&mut self.early) {
            if self.view.frame(&frame).live {
                self.grow(&frame, out);
            }
        }
    }

    fn grow(&mut self, frame: &Frame, out: &mut Out) {
        if let Some(call) = self.call_of(frame.part) {
            let grown = self.view.growing().find(|(part, _)| *part == frame.part).map(|(_, grown)| grown.text.clone());
            let content = [content_text(&fenced(&grown.unwrap_or_default()))];
            let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": call, "content": content});
            out.update(self.id, &update);
        } else if let Some(new) = self.texts.frame(frame) {
            let kind = if frame.thought { "agent_thought_chunk" } else { "agent_message_chunk" };
            self.chunk(out, kind, text_block(&new), &format!("{}-{}", frame.turn_id, frame.part));
        }
    }

    /// The call of the turn that runs whose output has this number.
    fn call_of(&self, part: u32) -> Option<String> {
        let of_turn = self.view.items().rev().take_while(|item| !matches!(item.shown, Shown::Turn(_)));
        of_turn.into_iter().find_map(|item| match &item.shown {
            Shown::Tool(call) if call.part == Some(part) => Some(call.tool_call_id.clone()),
            _ => None,
        })
    }

    fn tool(&self, call: &ToolCall, is_new: bool, out: &mut Out) {
        let mut fields = blocks::tool_call(call);
        let kind = if is_new { "tool_call" } else { "tool_call_update" };
        fields.insert("sessionUpdate".to_owned(), json!(kind));
        out.update(self.id, &Value::Object(fields));
    }

    /// Something that is no part of the conversation: as a notice where the editor has them, and not of what is over.
    pub(super) fn note(&mut self, out: &mut Out, text: &str) {
        if out.editor.notices && self.is_open() {
            let notice = json!({"sessionUpdate": "notice", "severity": "info", "title": visible(text)});
            return out.update(self.id, &notice);
        }
        self.text_of_ours(out, &escaped(text));
    }

    /// The text is Markdown.
    pub(super) fn text_of_ours(&mut self, out: &mut Out, text: &str) {
        self.next_note += 1;
        let message = format!("ensemble-{}", self.next_note);
        // Editors that join texts keep it apart.
        self.chunk(out, "agent_message_chunk", text_block(&format!("\n\n{}\n\n", quoted(text))), &message);
    }
}
