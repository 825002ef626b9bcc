//! Looks: which machine is asked, and how far a look is.

use ensemble_types::ids::{LookId, MachineId, SessionId, UserId};
use ensemble_types::looks::{AskLook, LookAsked, LookQuestion};

use super::Invalid;
use super::access::{Access, Ownership, Refusal};

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Session(SessionId),
    Machine(MachineId),
}

/// The machine that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    /// The session that it hosts, if one is looked at.
    pub(crate) session: Option<SessionId>,
}

/// A question on its way to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: LookId,
    pub(crate) whose: Whose,
    pub(crate) question: LookQuestion,
}

/// How far a look is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Waiting,
    /// Or it was there too long.
    Sent,
    Answered(String),
}

impl Target {
    pub(crate) fn of(body: AskLook) -> Result<(Self, LookQuestion), Invalid> {
        match (body.session_id, body.machine_id) {
            (Some(session), None) => Ok((Self::Session(session), body.question)),
            (None, Some(machine)) => Ok((Self::Machine(machine), body.question)),
            _ => Err(Invalid::new("/sessionId", "must be there, or `machineId` must be, and not both")),
        }
    }
}

impl Whose {
    /// The machine that hosts this session. Whether it answers this user is decided by what is signed in the question.
    pub(crate) fn of_session(session: SessionId, ownership: Ownership<'_>, access: &Access) -> Result<Self, NoMachine> {
        access.edit()?;
        let host = ownership.host.and_then(|host| host.parse().ok()).ok_or(NoMachine::NotHosted)?;
        Ok(Self { owner: ownership.owner, machine: host, session: Some(session) })
    }
}

/// Why no machine is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoMachine {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("no machine hosts the session")]
    NotHosted,
}

impl Asked {
    /// The data of the event.
    pub(crate) fn event(self) -> LookAsked {
        LookAsked { id: self.id, question: self.question, session_id: self.whose.session }
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::sessions::AccessLevel;

    use super::*;

    #[test]
    fn a_look_is_at_a_session_or_at_a_machine() {
        let of = |json: &str| Target::of(serde_json::from_str(json).unwrap()).map(|(target, _)| target);
        let session = "01890a5d-ac96-774b-bcce-b302099a8057";
        let both = format!(r#"{{"question":"q","sessionId":"{session}","machineId":"desk"}}"#);
        assert_eq!(of(r#"{"question":"q"}"#).unwrap_err().pointer, "/sessionId");
        assert_eq!(of(&both).unwrap_err().pointer, "/sessionId");
        let expected = Target::Session(session.parse().unwrap());
        assert_eq!(of(&both.replace(r#","machineId":"desk""#, "")), Ok(expected));
        assert_eq!(of(r#"{"question":"q","machineId":"desk"}"#), Ok(Target::Machine("desk".parse().unwrap())));
    }

    #[test]
    fn who_may_write_in_a_hosted_session_may_look() {
        let (session, owner) = (SessionId::generate(), UserId::generate());
        let of = |host, level| {
            let whose = Whose::of_session(session, Ownership { owner, host }, &Access::Person(level));
            whose.map(|whose| whose.machine.to_string())
        };
        for level in [AccessLevel::Owner, AccessLevel::Admin, AccessLevel::Edit] {
            assert_eq!(of(Some("desk"), level), Ok("desk".to_owned()));
            assert_eq!(of(None, level), Err(NoMachine::NotHosted));
        }
        let refused = Err(NoMachine::Refused(Refusal::Forbidden));
        assert_eq!((of(Some("desk"), AccessLevel::View), of(None, AccessLevel::View)), (refused.clone(), refused));
    }
}
