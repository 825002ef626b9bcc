//! What coding agents may do without asking, and what they were refused.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::Text;

/// What a coding agent may do without asking a person. The runner's configuration is the upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// It only reads and plans.
    Plan,
    /// It reads, and asks a person for everything else. Only sessions have a person who can answer.
    Ask,
    /// It may also change files in its working directory.
    Edit,
    /// It may do everything that the runner's account may do.
    Bypass,
}

impl Permission {
    pub const ALL: [Self; 4] = [Self::Plan, Self::Ask, Self::Edit, Self::Bypass];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Ask => "ask",
            Self::Edit => "edit",
            Self::Bypass => "bypass",
        }
    }
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Permission {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|permission| permission.as_str() == text);
        found.ok_or("must be plan, ask, edit or bypass")
    }
}

/// What an agent was refused because no person was there to allow it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionDenials {
    /// How often.
    pub count: u32,
    /// The first 32.
    #[schema(max_items = 32)]
    pub denials: Vec<PermissionDenial>,
}

/// One refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionDenial {
    /// The tool's name, in the words of the agent.
    pub tool: Text<1, 128>,
    /// The command, the path or the address that the tool was called with.
    pub summary: Text<0, 512>,
}
