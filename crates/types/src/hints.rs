//! Hints of an account: what has changed, and not how. A client that gets one reads the thing again.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HintKind {
    Session,
    Run,
    Machine,
    Device,
    /// The caller's share of a session, whose id it is.
    Share,
    /// Some hints are missing: anything may have changed.
    All,
}

impl HintKind {
    pub const ALL: [Self; 6] = [Self::Session, Self::Run, Self::Machine, Self::Device, Self::Share, Self::All];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Run => "run",
            Self::Machine => "machine",
            Self::Device => "device",
            Self::Share => "share",
            Self::All => "all",
        }
    }
}

impl std::str::FromStr for HintKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or("is no kind of a hint")
    }
}

/// The data of the event `hint`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hint {
    pub kind: HintKind,
    /// Absent for `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Rises with each change of what has this id. Absent for `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
}

impl Hint {
    /// Anything may have changed.
    pub const ANY: Self = Self { kind: HintKind::All, id: None, revision: None };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name() {
        for kind in HintKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.as_str()));
        }
        assert_eq!(serde_json::to_string(&Hint::ANY).unwrap(), r#"{"kind":"all"}"#);
    }
}
