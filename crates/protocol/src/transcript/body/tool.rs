//! Calls of tools: ACP's `ToolCall` and `ToolCallUpdate` in one (agentclientprotocol.com, "Tool calls").

use serde::{Deserialize, Serialize};

use crate::transcript::words::{ToolKind, ToolStatus};

/// A call of a tool. A later one with the same id amends it: a field that is absent has not changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    pub tool_call_id: String,
    pub turn_id: String,
    /// The number that live frames of its output name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ToolStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locations: Option<Vec<Location>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<ToolContent>>,
    /// The call of the sub-agent that made this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<String>,
}

/// A file that a tool works on: ACP's `ToolCallLocation`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    pub path: String,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// What a tool produced: ACP's `ToolCallContent`. `cut` says how many bytes are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolContent {
    Content {
        content: Block,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut: Option<u64>,
    },
    Diff(Diff),
    Terminal(Terminal),
    /// A kind that this version does not know.
    #[serde(other)]
    Newer,
}

/// A text: ACP's `ContentBlock`, of which only texts are kept here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    #[serde(other)]
    Newer,
}

/// A change of a file, whole or the part that changes: ACP's `Diff`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    pub path: String,
    /// Null for a new file.
    #[serde(default)]
    pub old_text: Option<String>,
    pub new_text: String,
    /// The line of the file, from 1, where the old text begins. Absent where the agent does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The bytes that are missing of both texts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
}

/// The output of a command: the fields of ACP's `terminal/output`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminal {
    pub terminal_id: String,
    /// The end of the output.
    pub output: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<ExitStatus>,
}

/// ACP's `TerminalExitStatus`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

impl ToolContent {
    /// A text that is whole.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Content { content: Block::Text { text: text.into() }, cut: None }
    }

    /// Its bytes, to count what is kept.
    pub fn size(&self) -> usize {
        match self {
            Self::Content { content: Block::Text { text }, .. } => text.len(),
            Self::Diff(diff) => diff.path.len() + diff.old_text.as_deref().map_or(0, str::len) + diff.new_text.len(),
            Self::Terminal(terminal) => terminal.output.len(),
            Self::Content { .. } | Self::Newer => 0,
        }
    }
}

impl ToolCall {
    /// Takes what a later message with the same id says.
    pub fn amend(&mut self, later: Self) {
        fn take<T>(own: &mut Option<T>, later: Option<T>) {
            if later.is_some() {
                *own = later;
            }
        }
        take(&mut self.part, later.part);
        take(&mut self.title, later.title);
        take(&mut self.kind, later.kind);
        take(&mut self.status, later.status);
        take(&mut self.locations, later.locations);
        take(&mut self.content, later.content);
        take(&mut self.parent_tool_call_id, later.parent_tool_call_id);
    }

    /// Its bytes, to count what is kept.
    pub fn size(&self) -> usize {
        let content = self.content.iter().flatten().map(ToolContent::size);
        let places = self.locations.iter().flatten().map(|place| place.path.len());
        self.tool_call_id.len() + self.title.as_deref().map_or(0, str::len) + content.chain(places).sum::<usize>()
    }
}
