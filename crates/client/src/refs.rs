//! Refs of answers. They are computed from the ids, so that a server cannot give one thing the short name of another.

use ensemble_types::machines::{Machine, MachinePage};
use ensemble_types::refs::Ref;
use ensemble_types::runs::{Pended, Run, RunPage, Task};
use ensemble_types::sessions::{Session, SessionPage};

use crate::error::{Error, Result};

/// An answer with ids and refs.
pub(crate) trait Named {
    fn has_its_refs(&self) -> bool;
}

/// Refuses an answer with a ref that is not the one of its id.
pub(crate) fn named<T: Named>(answer: T) -> Result<T> {
    if answer.has_its_refs() { Ok(answer) } else { Err(Error::OtherRef) }
}

impl Named for Session {
    fn has_its_refs(&self) -> bool {
        self.reference == Ref::of(&self.id)
    }
}

impl Named for Machine {
    fn has_its_refs(&self) -> bool {
        self.reference == Ref::of(&self.id)
    }
}

impl Named for Task {
    fn has_its_refs(&self) -> bool {
        self.reference == Ref::of(&self.id)
    }
}

impl Named for Run {
    fn has_its_refs(&self) -> bool {
        self.reference == Ref::of(&self.id) && self.tasks.iter().flatten().all(Named::has_its_refs)
    }
}

impl Named for Pended {
    fn has_its_refs(&self) -> bool {
        let tasks = self.changed_tasks.iter().all(|task| task.reference == Ref::of(&task.id));
        self.reference == Ref::of(&self.id) && self.run.has_its_refs() && tasks
    }
}

impl Named for SessionPage {
    fn has_its_refs(&self) -> bool {
        self.sessions.iter().all(Named::has_its_refs)
    }
}

impl Named for MachinePage {
    fn has_its_refs(&self) -> bool {
        self.machines.iter().all(Named::has_its_refs)
    }
}

impl Named for RunPage {
    fn has_its_refs(&self) -> bool {
        self.runs.iter().all(Named::has_its_refs)
    }
}

/// With whether it is new.
impl<T: Named> Named for (T, bool) {
    fn has_its_refs(&self) -> bool {
        self.0.has_its_refs()
    }
}
