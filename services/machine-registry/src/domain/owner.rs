//! The owner of a machine. A machine is identified by its account and its id together.

use ensemble_types::ids::{MachineId, UserId};

/// A machine of the caller's account that the caller may act for. It need not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnMachine {
    pub(crate) owner: UserId,
    pub(crate) id: MachineId,
}

/// A machine token was used for a machine that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a machine token acts for its own machine only")]
pub(crate) struct OtherMachine;

impl OwnMachine {
    /// `token_for` is the machine that the caller's token is bound to. A user's token is bound to none.
    pub(crate) fn of(owner: UserId, token_for: Option<MachineId>, id: MachineId) -> Result<Self, OtherMachine> {
        match token_for {
            Some(bound) if bound != id => Err(OtherMachine),
            _ => Ok(Self { owner, id }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_token_acts_for_one_machine_and_a_user_for_all_of_the_account() {
        let owner = UserId::generate();
        let (a, b): (MachineId, MachineId) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert!(OwnMachine::of(owner, None, a.clone()).is_ok());
        assert!(OwnMachine::of(owner, Some(a.clone()), a.clone()).is_ok());
        assert_eq!(OwnMachine::of(owner, Some(a), b), Err(OtherMachine));
    }
}
