//! Permissions on a session, as values. A function that changes something takes a proof such as [`CanEdit`], and only this
//! file can create one. Which change of a session needs which level: `session.rs`.

use std::marker::PhantomData;

use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::sessions::AccessLevel;
use ensemble_types::shares::ShareLevel;

/// Why an action is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The caller has no access at all, and must not learn whether the session exists.
    #[error("the caller cannot see this session")]
    NotFound,
    /// The caller can see the session, but the access level does not allow this action.
    #[error("the caller's access level is too low")]
    Forbidden,
    /// The same, and no level that the owner can give is enough.
    #[error("the caller is not the owner")]
    OwnerOnly,
    /// The caller is the session's machine, and only people do this.
    #[error("the caller is the session's machine")]
    PeopleOnly,
    /// A machine's token names another machine, or none.
    #[error("the machine is not the caller's own")]
    OtherMachine,
}

/// Who calls: a user, or a machine of the user with a token of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Actor {
    pub(crate) user: UserId,
    /// Set when the machine calls.
    pub(crate) machine: Option<MachineId>,
}

/// Whose a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership<'a> {
    pub(crate) owner: UserId,
    /// The machine that made it with its own token.
    pub(crate) host: Option<&'a str>,
}

/// A caller's access to one session. It is true for as long as the rows it was made from stay locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Person(AccessLevel),
    /// Of the session's machine.
    Host,
}

/// Proof that the caller may append messages and send heartbeats. It cannot outlive the [`Access`] it was made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanEdit<'a>(PhantomData<&'a Access>);

/// Proof that the caller may manage shares and public links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanAdminister<'a>(PhantomData<&'a Access>);

/// Proof that the caller may make one particular change of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanChange<'a>(PhantomData<&'a Access>);

/// Proof that the caller is the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanOwn<'a>(PhantomData<&'a Access>);

/// Proof that the caller may create, change or remove one particular share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanShare<'a>(PhantomData<&'a Access>);

impl Actor {
    /// Whether a session that this caller creates on that machine is hosted. A machine's token creates them on its own only.
    pub(crate) fn hosts(&self, machine: Option<&MachineId>) -> Result<bool, Refusal> {
        match &self.machine {
            None => Ok(false),
            own if own.as_ref() == machine => Ok(true),
            Some(_) => Err(Refusal::OtherMachine),
        }
    }
}

impl Access {
    /// Access of the owner, of the recipient of a share, or of the machine that made the session. Other callers have none, and a
    /// machine does not have what its user has.
    pub(crate) fn of(session: Ownership<'_>, caller: &Actor, share: Option<ShareLevel>) -> Result<Self, Refusal> {
        let is_owner = session.owner == caller.user;
        if let Some(machine) = &caller.machine {
            let is_host = is_owner && session.host == Some(machine.as_str());
            return if is_host { Ok(Self::Host) } else { Err(Refusal::NotFound) };
        }
        Ok(Self::Person(match share {
            _ if is_owner => AccessLevel::Owner,
            Some(ShareLevel::Admin) => AccessLevel::Admin,
            Some(ShareLevel::Edit) => AccessLevel::Edit,
            Some(ShareLevel::View) => AccessLevel::View,
            None => return Err(Refusal::NotFound),
        }))
    }

    /// As the caller reads it.
    pub(crate) fn level(self) -> AccessLevel {
        match self {
            Self::Person(level) => level,
            Self::Host => AccessLevel::Edit,
        }
    }

    pub(crate) fn edit(&self) -> Result<CanEdit<'_>, Refusal> {
        self.at_least(AccessLevel::Edit).map(|()| CanEdit(PhantomData))
    }

    pub(crate) fn administer(&self) -> Result<CanAdminister<'_>, Refusal> {
        self.at_least(AccessLevel::Admin).map(|()| CanAdminister(PhantomData))
    }

    /// Allows a change that requires this access level. The session's machine makes all but those of the owner.
    pub(crate) fn change(&self, required: AccessLevel) -> Result<CanChange<'_>, Refusal> {
        let is_host = *self == Self::Host && required <= AccessLevel::Admin;
        if is_host { Ok(()) } else { self.at_least(required) }.map(|()| CanChange(PhantomData))
    }

    pub(crate) fn own(&self) -> Result<CanOwn<'_>, Refusal> {
        self.at_least(AccessLevel::Owner).map(|()| CanOwn(PhantomData))
    }

    /// The owner may create or change any share; an admin only shares that neither are nor become admin.
    pub(crate) fn share(
        &self,
        existing: Option<ShareLevel>,
        wanted: Option<ShareLevel>,
    ) -> Result<CanShare<'_>, Refusal> {
        let concerns_an_admin = existing == Some(ShareLevel::Admin) || wanted == Some(ShareLevel::Admin);
        let needed = if concerns_an_admin { AccessLevel::Owner } else { AccessLevel::Admin };
        self.at_least(needed).map(|()| CanShare(PhantomData))
    }

    /// Users may remove their own share, the owner any share, and an admin shares that are not admin.
    pub(crate) fn unshare(
        &self,
        caller: UserId,
        target: UserId,
        existing: Option<ShareLevel>,
    ) -> Result<CanShare<'_>, Refusal> {
        let is_own = *self != Self::Host && caller == target;
        if is_own { Ok(CanShare(PhantomData)) } else { self.share(existing, None) }
    }

    fn at_least(self, needed: AccessLevel) -> Result<(), Refusal> {
        match (self, needed) {
            _ if self.level() >= needed => Ok(()),
            (Self::Host, _) => Err(Refusal::PeopleOnly),
            (_, AccessLevel::Owner) => Err(Refusal::OwnerOnly),
            _ => Err(Refusal::Forbidden),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(user: UserId) -> Actor {
        Actor { user, machine: None }
    }

    fn made_by_people(owner: UserId) -> Ownership<'static> {
        Ownership { owner, host: None }
    }

    fn access(share: Option<ShareLevel>) -> Result<Access, Refusal> {
        Access::of(made_by_people(UserId::generate()), &person(UserId::generate()), share)
    }

    #[test]
    fn users_without_a_share_have_no_access_and_the_owner_needs_none() {
        assert_eq!(access(None), Err(Refusal::NotFound));
        let owner = UserId::generate();
        assert_eq!(Access::of(made_by_people(owner), &person(owner), None).map(Access::level), Ok(AccessLevel::Owner));
    }

    #[test]
    fn an_admin_cannot_change_another_admin() {
        let admin = access(Some(ShareLevel::Admin)).unwrap();
        assert!(admin.share(None, Some(ShareLevel::Edit)).is_ok());
        assert!(admin.share(Some(ShareLevel::Admin), Some(ShareLevel::View)).is_err());
        assert!(admin.share(Some(ShareLevel::View), Some(ShareLevel::Admin)).is_err());
        let (me, other) = (UserId::generate(), UserId::generate());
        assert!(admin.unshare(me, other, Some(ShareLevel::Admin)).is_err());
        assert!(admin.unshare(me, me, Some(ShareLevel::Admin)).is_ok());
    }

    #[test]
    fn each_level_includes_the_lower_ones() {
        let may = |level| {
            let access = access(Some(level)).unwrap();
            (access.edit().is_ok(), access.administer().is_ok(), access.own().is_ok())
        };
        assert_eq!(may(ShareLevel::View), (false, false, false));
        assert_eq!(may(ShareLevel::Edit), (true, false, false));
        assert_eq!(may(ShareLevel::Admin), (true, true, false));
    }

    #[test]
    fn the_owner_may_do_everything() {
        let owner = UserId::generate();
        let access = Access::of(made_by_people(owner), &person(owner), Some(ShareLevel::View)).unwrap();
        assert!(access.edit().is_ok() && access.administer().is_ok() && access.own().is_ok());
        assert!(access.share(Some(ShareLevel::Admin), Some(ShareLevel::View)).is_ok());
        assert!(access.unshare(owner, UserId::generate(), Some(ShareLevel::Admin)).is_ok());
    }

    #[test]
    fn only_admins_share_and_only_guests_themselves_leave() {
        for level in [ShareLevel::View, ShareLevel::Edit] {
            let guest = access(Some(level)).unwrap();
            let (me, other) = (UserId::generate(), UserId::generate());
            assert_eq!(guest.share(None, Some(ShareLevel::View)).map(|_| ()), Err(Refusal::Forbidden));
            assert_eq!(guest.unshare(me, other, Some(ShareLevel::View)).map(|_| ()), Err(Refusal::Forbidden));
            assert!(guest.unshare(me, me, Some(level)).is_ok());
        }
    }

    #[test]
    fn a_change_needs_the_level_that_it_names() {
        let editor = access(Some(ShareLevel::Edit)).unwrap();
        assert_eq!(editor.level(), AccessLevel::Edit);
        assert!(editor.change(AccessLevel::View).is_ok() && editor.change(AccessLevel::Edit).is_ok());
        for (higher, refusal) in [(AccessLevel::Admin, Refusal::Forbidden), (AccessLevel::Owner, Refusal::OwnerOnly)] {
            assert_eq!(editor.change(higher).map(|_| ()), Err(refusal), "{higher:?}");
        }
    }

    #[test]
    fn a_machine_has_access_to_the_sessions_that_it_made_and_to_no_others() {
        let owner = UserId::generate();
        let machine = |name: &str| Actor { user: owner, machine: Some(name.parse().unwrap()) };
        let hosted = Ownership { owner, host: Some("a") };
        assert_eq!(Access::of(hosted, &machine("a"), None), Ok(Access::Host));
        let elsewhere = Actor { user: UserId::generate(), ..machine("a") };
        for (session, caller) in [(hosted, machine("b")), (made_by_people(owner), machine("a")), (hosted, elsewhere)] {
            for share in [None, Some(ShareLevel::Admin)] {
                assert_eq!(Access::of(session, &caller, share), Err(Refusal::NotFound), "{caller:?}");
            }
        }
        assert_eq!(Access::of(hosted, &person(owner), None), Ok(Access::Person(AccessLevel::Owner)));
    }

    #[test]
    fn a_machine_writes_and_does_not_decide_who_may() {
        let (host, owner) = (Access::Host, UserId::generate());
        assert!(host.edit().is_ok());
        for allowed in [AccessLevel::Edit, AccessLevel::Admin] {
            assert!(host.change(allowed).is_ok(), "{allowed:?}");
        }
        for refused in [
            host.change(AccessLevel::Owner).map(drop),
            host.administer().map(drop),
            host.own().map(drop),
            host.share(None, Some(ShareLevel::View)).map(drop),
            host.unshare(owner, owner, None).map(drop),
        ] {
            assert_eq!(refused, Err(Refusal::PeopleOnly));
        }
    }

    #[test]
    fn a_machine_creates_sessions_on_itself_only() {
        let (a, b): (MachineId, MachineId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let machine = Actor { user: UserId::generate(), machine: Some(a.clone()) };
        assert_eq!(machine.hosts(Some(&a)), Ok(true));
        assert_eq!(machine.hosts(Some(&b)), Err(Refusal::OtherMachine));
        assert_eq!(machine.hosts(None), Err(Refusal::OtherMachine));
        let user = person(UserId::generate());
        assert_eq!((user.hosts(Some(&a)), user.hosts(None)), (Ok(false), Ok(false)));
    }
}
