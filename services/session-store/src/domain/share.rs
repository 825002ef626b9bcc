//! Rules for private shares that do not depend on the caller's access level.

use ensemble_types::ids::UserId;

use super::Invalid;

/// The most shares that one session can have.
pub(crate) const MAX_SHARES: i64 = 100;

/// Refuses a share with the session's owner or with the caller.
pub(crate) fn check_recipient(owner: UserId, caller: UserId, recipient: UserId) -> Result<(), Invalid> {
    if recipient == owner {
        return Err(Invalid::new("/userId", "is the session's owner, who needs no share"));
    }
    if recipient == caller {
        return Err(Invalid::new("/userId", "is your own id; you already have access to this session"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_for_a_user_without_access() {
        let (owner, admin, other) = (UserId::generate(), UserId::generate(), UserId::generate());
        let refusal = |caller, recipient| check_recipient(owner, caller, recipient).err().map(|invalid| invalid.detail);
        assert_eq!(refusal(owner, other), None);
        assert_eq!(refusal(admin, other), None);
        assert!(refusal(admin, owner).is_some_and(|detail| detail.contains("owner")));
        assert!(refusal(owner, owner).is_some_and(|detail| detail.contains("owner")));
        assert!(refusal(admin, admin).is_some_and(|detail| detail.contains("your own id")));
    }
}
