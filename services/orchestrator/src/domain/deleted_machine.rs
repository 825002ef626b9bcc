//! Machines that were deleted, and machines that were registered with the same id after that.

use ensemble_types::time::Timestamp;

/// The last deletion of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeletedMachine {
    /// By the clock of machine-registry.
    pub(crate) deleted_at: Timestamp,
    /// By the clock of this service's database. What was granted or submitted until then belongs to the deleted machine.
    /// `None` until the transactions have ended that could not know of the deletion.
    pub(crate) ended_until: Option<Timestamp>,
    /// When a machine with the same id was created after the deletion, as far as this service knows.
    pub(crate) registered_at: Option<Timestamp>,
}

impl DeletedMachine {
    /// No machine with this id is known to exist.
    pub(crate) fn is_gone(&self) -> bool {
        self.registered_at.is_none()
    }

    /// The lease was granted to the deleted machine, and not to another one with the same id.
    pub(crate) fn held(&self, granted_at: Timestamp) -> bool {
        self.ended_until.is_none_or(|until| granted_at <= until)
    }

    /// Whether the machine with this id that was created then is another one, which may be given tasks. Not before
    /// `ended_until` is known, because what it were given would end with what the deleted machine had.
    pub(crate) fn may_be_replaced(&self, created_at: Timestamp) -> bool {
        self.ended_until.is_some() && is_another(created_at, self.deleted_at)
    }
}

/// What has to be recorded when a deletion is reported. `None` when this one, or a later one, is known.
///
/// `registered_at` is the creation of the machine that has the id now. Only when there is such a machine do the clocks of two
/// databases have to be compared, because it may have leases already.
pub(crate) fn new_deletion(
    known: Option<DeletedMachine>,
    deleted_at: Timestamp,
    registered_at: Option<Timestamp>,
) -> Option<DeletedMachine> {
    if known.is_some_and(|known| known.deleted_at >= deleted_at) {
        return None;
    }
    let registered_at = registered_at.filter(|at| is_another(*at, deleted_at));
    Some(DeletedMachine { deleted_at, ended_until: registered_at.map(|_| deleted_at), registered_at })
}

/// Whether a machine is another one than the one with its id that was deleted. Both times are machine-registry's.
fn is_another(created_at: Timestamp, deleted_at: Timestamp) -> bool {
    created_at >= deleted_at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(seconds)
    }

    #[test]
    fn all_leases_belong_to_a_deleted_machine_that_has_no_successor() {
        let mut deleted = new_deletion(None, at(10), None).unwrap();
        assert!(deleted.is_gone() && deleted.held(at(99)) && !deleted.may_be_replaced(at(99)));
        // The directory still shows the machine that was deleted.
        assert_eq!(new_deletion(None, at(10), Some(at(3))), Some(deleted));
        deleted.ended_until = Some(at(15));
        assert!(deleted.held(at(12)) && deleted.held(at(15)) && !deleted.held(at(16)));
        assert!(!deleted.may_be_replaced(at(9)) && deleted.may_be_replaced(at(11)));
    }

    #[test]
    fn a_machine_that_was_registered_before_the_deletion_was_reported_keeps_its_leases() {
        let deleted = new_deletion(None, at(10), Some(at(11))).unwrap();
        assert!(!deleted.is_gone() && deleted.held(at(10)) && !deleted.held(at(12)));
    }

    #[test]
    fn a_repeated_report_changes_nothing_and_a_later_deletion_replaces_the_earlier_one() {
        let first = new_deletion(None, at(10), None);
        assert_eq!(new_deletion(first, at(10), None), None);
        assert_eq!(new_deletion(first, at(9), None), None);
        assert_eq!(new_deletion(first, at(18), None).unwrap().deleted_at, at(18));
    }

    #[test]
    fn a_machine_created_at_the_time_of_the_deletion_is_another_one() {
        assert_eq!(new_deletion(None, at(10), Some(at(10))).unwrap().registered_at, Some(at(10)));
        assert_eq!(new_deletion(None, at(10), Some(at(9))).unwrap().registered_at, None);
        let ended = DeletedMachine { deleted_at: at(10), ended_until: Some(at(15)), registered_at: None };
        assert!(ended.may_be_replaced(at(10)));
    }
}
