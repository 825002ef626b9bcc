//! What becomes of the changes of a task: which states follow from the owner's wish and from the machine's answer.

use std::time::Duration;

use ensemble_types::changes::OrderOutcome;
use ensemble_types::runs::ChangesState;
use ensemble_types::time::Timestamp;

/// How long an order waits for its machine.
pub(crate) const ORDER_WAITS: Duration = Duration::from_hours(24);
/// A machine that has not taken an order after this time counts as away, whatever it did before.
pub(crate) const TAKES_WITHIN: Duration = Duration::from_secs(4);

/// What the owner wants to become of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangesWish {
    Apply,
    Discard,
}

/// What follows from a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WishOutcome {
    /// The machine gets an order, and the changes have this state until it has answered.
    Ordered(ChangesState),
    /// It was asked for before, or has been done.
    AsItIs,
    /// It cannot be done, for this reason.
    Impossible(&'static str),
}

/// What follows when the owner wants something.
pub(crate) fn wish(state: ChangesState, wish: ChangesWish) -> WishOutcome {
    use ChangesState as S;
    use ChangesWish::{Apply, Discard};
    use WishOutcome::{AsItIs, Impossible, Ordered};
    match (state, wish) {
        (S::Kept | S::Conflicted, Apply) => Ordered(S::Applying),
        (S::Applying | S::Applied, Apply) | (S::Discarding | S::Discarded, Discard) => AsItIs,
        (S::Kept | S::Conflicted | S::Applied, Discard) => Ordered(S::Discarding),
        (S::None, _) => Impossible("The task has no worktree. What it changed is in its directory."),
        (S::Discarding | S::Discarded, Apply) => Impossible("The changes were discarded."),
        (S::Applying, Discard) => Impossible("The changes are being applied. Wait until that has ended."),
        (S::Lost, _) => Impossible("The worktree is gone, with the changes that were in it."),
    }
}

/// The state after the machine's answer to an order. `before` was the state when the order was given. `None` when the answer
/// does not belong to the order.
pub(crate) fn settled(state: ChangesState, before: ChangesState, outcome: OrderOutcome) -> Option<ChangesState> {
    use ChangesState as S;
    match (state, outcome) {
        (S::Applying, OrderOutcome::Applied) => Some(S::Applied),
        (S::Applying, OrderOutcome::Conflicted) => Some(S::Conflicted),
        (S::Discarding, OrderOutcome::Discarded) => Some(S::Discarded),
        // There is nothing left to remove.
        (S::Discarding, OrderOutcome::Lost) => Some(S::Discarded),
        (S::Applying, OrderOutcome::Lost) => Some(S::Lost),
        (S::Applying | S::Discarding, OrderOutcome::Failed) => Some(before),
        // They are not those that their owner was shown, and stay as they were.
        (S::Discarding, OrderOutcome::Conflicted) => Some(before),
        _ => None,
    }
}

/// The state after the machine was deleted. `None` when nothing of it was lost.
pub(crate) const fn lost_with_machine(state: ChangesState) -> bool {
    use ChangesState as S;
    matches!(state, S::Kept | S::Applying | S::Conflicted | S::Discarding)
}

/// Whether an open order waits for its machine: it has not taken the order, and asks for none or has had the time to take it.
pub(crate) fn waits_for_machine((until, is_taken): (Timestamp, bool), is_active: bool, now: Timestamp) -> bool {
    let given = until.minus(ORDER_WAITS);
    !is_taken && (!is_active || given.plus(TAKES_WITHIN) <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row for each state: what follows from apply, from discard, and whether it is lost with the machine.
    const TABLE: [(ChangesState, &str, &str, bool); 8] = [
        (ChangesState::None, "impossible", "impossible", false),
        (ChangesState::Kept, "applying", "discarding", true),
        (ChangesState::Applying, "as it is", "impossible", true),
        (ChangesState::Applied, "as it is", "discarding", false),
        (ChangesState::Conflicted, "applying", "discarding", true),
        (ChangesState::Discarding, "impossible", "as it is", true),
        (ChangesState::Discarded, "impossible", "as it is", false),
        (ChangesState::Lost, "impossible", "impossible", false),
    ];

    #[test]
    fn every_state_and_wish_has_the_expected_outcome() {
        let name = |state, what| match wish(state, what) {
            WishOutcome::Ordered(state) => state.as_str(),
            WishOutcome::AsItIs => "as it is",
            WishOutcome::Impossible(_) => "impossible",
        };
        assert_eq!(TABLE.map(|(state, ..)| state), ChangesState::ALL);
        for (state, apply, discard, is_lost) in TABLE {
            assert_eq!(name(state, ChangesWish::Apply), apply, "{state:?}");
            assert_eq!(name(state, ChangesWish::Discard), discard, "{state:?}");
            assert_eq!(lost_with_machine(state), is_lost, "{state:?}");
        }
    }

    #[test]
    fn an_order_waits_for_a_machine_that_does_not_take_it() {
        let given = Timestamp::from_unix_seconds(1_000);
        let order = |is_taken| (given.plus(ORDER_WAITS), is_taken);
        let late = given.plus(TAKES_WITHIN);
        assert!(!waits_for_machine(order(false), true, given), "it has a moment");
        assert!(waits_for_machine(order(false), false, given), "nothing asks for orders there");
        assert!(waits_for_machine(order(false), true, late));
        assert!(!waits_for_machine(order(true), true, late) && !waits_for_machine(order(true), false, late));
    }

    #[test]
    fn an_answer_settles_the_order_that_it_belongs_to() {
        use ChangesState as S;
        use OrderOutcome as O;
        let outcomes = [O::Applied, O::Conflicted, O::Discarded, O::Lost, O::Failed];
        let of = |state| outcomes.map(|outcome| settled(state, S::Kept, outcome));
        assert_eq!(of(S::Applying), [Some(S::Applied), Some(S::Conflicted), None, Some(S::Lost), Some(S::Kept)]);
        assert_eq!(of(S::Discarding), [None, Some(S::Kept), Some(S::Discarded), Some(S::Discarded), Some(S::Kept)]);
        for state in S::ALL.into_iter().filter(|state| !state.is_ordered()) {
            assert_eq!(of(state), [None; 5], "{state:?}");
        }
    }
}
