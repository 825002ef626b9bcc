//! The tool calls of a turn, so that none is left without an end.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::body::{ToolCall, ToolContent};
use ensemble_protocol::transcript::bounds::{beginning, end};
use ensemble_protocol::transcript::words::{ToolKind, ToolStatus};
use serde::{Deserialize, Serialize};

use crate::event::Event;

/// The calls that are remembered.
const MOST: usize = 512;
/// The bytes of one content of a call.
pub(crate) const MOST_CONTENT: usize = 64 << 10;
/// The contents of one call.
const MOST_CONTENTS: usize = 32;

/// The calls that have no end yet, and what is known of each.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tools {
    open: BTreeMap<String, Known>,
}

/// A call that has no end yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) title: String,
    pub(crate) kind: ToolKind,
    pub(crate) part: Option<u32>,
    /// What it was going to change, as it said before.
    diffs: Vec<ToolContent>,
    order: u64,
}

impl Tools {
    pub(crate) fn get(&self, id: &str) -> Option<&Known> {
        self.open.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Known> {
        self.open.get_mut(id)
    }

    /// Notes a call or a change of it, and says it.
    pub(crate) fn take(&mut self, events: &mut Vec<Event>, mut call: ToolCall) {
        if let Some(content) = call.content.as_mut() {
            content.truncate(MOST_CONTENTS);
            content.iter_mut().for_each(bound);
        }
        let id = call.tool_call_id.clone();
        self.keep_diffs(&mut call);
        if is_over(call.status.as_ref()) {
            call.part = call.part.or_else(|| self.open.get(&id).and_then(|known| known.part));
            self.open.remove(&id);
        } else if let Some(known) = self.open.get_mut(&id) {
            if let Some(title) = &call.title {
                known.title.clone_from(title);
            }
            if let Some(kind) = &call.kind {
                known.kind.clone_from(kind);
            }
        } else if self.open.len() < MOST {
            let order = self.open.values().map(|known| known.order + 1).max().unwrap_or_default();
            let kind = call.kind.clone().unwrap_or(ToolKind::Unnamed);
            let (title, diffs) = (call.title.clone().unwrap_or_default(), diffs(call.content.as_deref()));
            self.open.insert(id, Known { title, kind, part: call.part, diffs, order });
        }
        events.push(Event::Tool(Box::new(call)));
    }

    /// Some agents say what they will change, and at the end only that they have done it.
    fn keep_diffs(&mut self, call: &mut ToolCall) {
        let Some(known) = self.open.get_mut(&call.tool_call_id) else { return };
        let Some(content) = call.content.as_mut() else { return };
        let newer = diffs(Some(content));
        if !newer.is_empty() {
            known.diffs = newer;
        } else if call.status == Some(ToolStatus::Completed) {
            content.splice(0..0, std::mem::take(&mut known.diffs));
        }
    }

    /// Ends all calls that have no end, in the order in which they began.
    pub(crate) fn close_all(&mut self, events: &mut Vec<Event>, status: &ToolStatus) {
        let mut open: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        open.sort_by_key(|(_, known)| known.order);
        for (tool_call_id, known) in open {
            let (status, part) = (Some(status.clone()), known.part);
            events.push(Event::Tool(Box::new(ToolCall { tool_call_id, status, part, ..ToolCall::default() })));
        }
    }
}

fn diffs(content: Option<&[ToolContent]>) -> Vec<ToolContent> {
    content.unwrap_or_default().iter().filter(|one| matches!(one, ToolContent::Diff(_))).cloned().collect()
}

fn is_over(status: Option<&ToolStatus>) -> bool {
    matches!(status, Some(ToolStatus::Completed | ToolStatus::Failed | ToolStatus::Interrupted))
}

/// Cuts what is too long, and says how much is missing.
fn bound(content: &mut ToolContent) {
    fn keep(text: &mut String, cut: &mut Option<u64>, keeps_end: bool) {
        let (kept, missing) = if keeps_end { end(text, MOST_CONTENT) } else { beginning(text, MOST_CONTENT) };
        if missing > 0 {
            *cut = Some(cut.unwrap_or(0).saturating_add(missing));
            *text = kept.to_owned();
        }
    }
    match content {
        ToolContent::Content { content: ensemble_protocol::transcript::body::Block::Text { text }, cut } => {
            keep(text, cut, false)
        }
        ToolContent::Terminal(terminal) => keep(&mut terminal.output, &mut terminal.cut, true),
        ToolContent::Diff(diff) => {
            if let Some(old) = diff.old_text.as_mut() {
                keep(old, &mut diff.cut, false);
            }
            keep(&mut diff.new_text, &mut diff.cut, false);
        }
        _ => {}
    }
}
