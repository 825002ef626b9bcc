//! Hints of an account: what has changed, and not how. A client that gets one reads the thing again.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::UserId;

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
    /// An invitation of the caller.
    Invite,
    /// Some hints are missing: anything may have changed. So it may with a kind that this version does not know.
    #[serde(other)]
    All,
}

impl HintKind {
    pub const ALL: [Self; 7] =
        [Self::Session, Self::Run, Self::Machine, Self::Device, Self::Share, Self::Invite, Self::All];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Run => "run",
            Self::Machine => "machine",
            Self::Device => "device",
            Self::Share => "share",
            Self::Invite => "invite",
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

/// A hint on its way between services and replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountHint {
    pub user: UserId,
    /// The machine that gets it in addition to the user's devices. Its name has no slash.
    pub machine: Option<String>,
    pub kind: HintKind,
    pub id: String,
    pub revision: i64,
}

/// `<user>/<machine>/<kind>/<revision>/<id>`.
impl fmt::Display for AccountHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine.as_deref().unwrap_or_default();
        write!(f, "{}/{machine}/{}/{}/{}", self.user, self.kind.as_str(), self.revision, self.id)
    }
}

impl std::str::FromStr for AccountHint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = "is no hint of an account";
        let parts: Vec<&str> = text.splitn(5, '/').collect();
        let [user, machine, kind, revision, id] = parts[..] else { return Err(malformed) };
        Ok(Self {
            user: user.parse().map_err(|_| malformed)?,
            machine: Some(machine.to_owned()).filter(|machine| !machine.is_empty()),
            kind: kind.parse()?,
            id: id.to_owned(),
            revision: revision.parse().map_err(|_| malformed)?,
        })
    }
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
    #[test]
    fn an_account_hint_is_a_text_that_reads_back() {
        for (machine, id) in [(None, "a/b"), (Some("laptop".to_owned()), "01890a5d")] {
            let hint = AccountHint {
                user: UserId::generate(),
                machine,
                kind: HintKind::Machine,
                id: id.to_owned(),
                revision: 7,
            };
            assert_eq!(hint.to_string().parse(), Ok(hint));
        }
        for bad in ["", "x//run/1/a", "01890a5d-ac96-774b-bcce-b302099a8057//walk/1/a", "////"] {
            assert!(bad.parse::<AccountHint>().is_err(), "{bad}");
        }
    }
}
