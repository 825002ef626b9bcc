//! Who may do what with a session. Permission is a value: what changes something takes the proof that it may, and only this
//! file makes one.

use std::marker::PhantomData;

use ensemble_types::ids::UserId;
use ensemble_types::sessions::AccessLevel;
use ensemble_types::shares::ShareLevel;

/// Why somebody may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// For this caller the session does not exist.
    NotFound,
    /// It may be seen, but not this be done.
    Forbidden,
}

/// A caller's standing towards one session, from rows that were read (or locked) together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    level: AccessLevel,
}

/// Proof that the caller may append and beat. It lives no longer than what it was read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanEdit<'a>(PhantomData<&'a Access>);

/// Proof that the caller may change metadata and agent state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanAdminister<'a>(PhantomData<&'a Access>);

/// Proof that the caller is the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanOwn<'a>(PhantomData<&'a Access>);

/// Proof that the caller may put this share in place of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanShare<'a>(PhantomData<&'a Access>);

impl Access {
    /// A stranger has none.
    pub(crate) fn of(owner: UserId, caller: UserId, share: Option<ShareLevel>) -> Result<Self, Refusal> {
        let level = match share {
            _ if owner == caller => AccessLevel::Owner,
            Some(ShareLevel::Admin) => AccessLevel::Admin,
            Some(ShareLevel::Edit) => AccessLevel::Edit,
            Some(ShareLevel::View) => AccessLevel::View,
            None => return Err(Refusal::NotFound),
        };
        Ok(Self { level })
    }

    pub(crate) fn level(self) -> AccessLevel {
        self.level
    }

    pub(crate) fn edit(&self) -> Result<CanEdit<'_>, Refusal> {
        self.at_least(AccessLevel::Edit).map(|()| CanEdit(PhantomData))
    }

    pub(crate) fn administer(&self) -> Result<CanAdminister<'_>, Refusal> {
        self.at_least(AccessLevel::Admin).map(|()| CanAdminister(PhantomData))
    }

    pub(crate) fn own(&self) -> Result<CanOwn<'_>, Refusal> {
        self.at_least(AccessLevel::Owner).map(|()| CanOwn(PhantomData))
    }

    /// To make, change or replace a share: the owner any, an admin those that neither are nor become admin.
    pub(crate) fn share(
        &self,
        existing: Option<ShareLevel>,
        wanted: Option<ShareLevel>,
    ) -> Result<CanShare<'_>, Refusal> {
        let concerns_an_admin = existing == Some(ShareLevel::Admin) || wanted == Some(ShareLevel::Admin);
        let needed = if concerns_an_admin { AccessLevel::Owner } else { AccessLevel::Admin };
        self.at_least(needed).map(|()| CanShare(PhantomData))
    }

    /// To remove a share: the owner any, an admin those of others that are not admin, everybody their own.
    pub(crate) fn unshare(
        &self,
        caller: UserId,
        target: UserId,
        existing: Option<ShareLevel>,
    ) -> Result<CanShare<'_>, Refusal> {
        if caller == target { Ok(CanShare(PhantomData)) } else { self.share(existing, None) }
    }

    fn at_least(self, needed: AccessLevel) -> Result<(), Refusal> {
        if self.level >= needed { Ok(()) } else { Err(Refusal::Forbidden) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(share: Option<ShareLevel>) -> Result<Access, Refusal> {
        Access::of(UserId::generate(), UserId::generate(), share)
    }

    #[test]
    fn a_stranger_sees_nothing_and_an_owner_needs_no_share() {
        assert_eq!(access(None), Err(Refusal::NotFound));
        let owner = UserId::generate();
        assert_eq!(Access::of(owner, owner, None).map(Access::level), Ok(AccessLevel::Owner));
    }

    #[test]
    fn an_admin_touches_no_admin() {
        let admin = access(Some(ShareLevel::Admin)).unwrap();
        assert!(admin.share(None, Some(ShareLevel::Edit)).is_ok());
        assert!(admin.share(Some(ShareLevel::Admin), Some(ShareLevel::View)).is_err());
        assert!(admin.share(Some(ShareLevel::View), Some(ShareLevel::Admin)).is_err());
        let (me, other) = (UserId::generate(), UserId::generate());
        assert!(admin.unshare(me, other, Some(ShareLevel::Admin)).is_err());
        assert!(admin.unshare(me, me, Some(ShareLevel::Admin)).is_ok());
    }

    #[test]
    fn each_level_may_what_the_ones_below_may() {
        let may = |level| {
            let access = access(Some(level)).unwrap();
            (access.edit().is_ok(), access.administer().is_ok(), access.own().is_ok())
        };
        assert_eq!(may(ShareLevel::View), (false, false, false));
        assert_eq!(may(ShareLevel::Edit), (true, false, false));
        assert_eq!(may(ShareLevel::Admin), (true, true, false));
    }
}
