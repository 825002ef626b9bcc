//! Which run a person means, and which task of it.

use ensemble_account::Account;
use ensemble_client::Error;
use ensemble_types::ids::RunId;
use ensemble_types::refs::IdOrRef;
use ensemble_types::runs::{Run, Task};

use crate::failure::{Failure, Result};

/// A run, given as its ref, its id, or as `last` for the one that was submitted or watched last on this device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Named(IdOrRef<RunId>),
    Last,
}

impl std::str::FromStr for Which {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "last" {
            return Ok(Self::Last);
        }
        text.parse().map(Self::Named).map_err(|_| "must be the ref (eight characters) or the id of a run, or `last`")
    }
}

fn unknown(run: &impl std::fmt::Display, error: Error) -> Failure {
    if error.is_not_found() {
        Failure::message(format!("You have no run {run}. `ensemble runs` shows your runs."))
    } else {
        error.into()
    }
}

impl Which {
    /// The run with its tasks.
    pub(crate) async fn get(self, me: &Account) -> Result<Run> {
        let id = self.find(me).await?;
        let mut run = me.client.run(id).await.map_err(|error| unknown(&id, error))?;
        me.take_signed(&mut run).await?;
        Ok(run)
    }

    pub(crate) async fn find(self, me: &Account) -> Result<RunId> {
        match self {
            Self::Named(IdOrRef::Id(id)) => Ok(id),
            Self::Named(IdOrRef::Ref(reference)) => {
                me.client.find_run(reference).await.map_err(|error| unknown(&reference, error))
            }
            Self::Last => me.last_run().ok_or_else(|| {
                Failure::message(
                    "No run was submitted or watched on this device yet, so there is no `last`. Name one: `ensemble runs` shows them.",
                )
            }),
        }
    }
}

/// Finds the task that the argument names.
pub(crate) fn find<'r>(run: &'r Run, named: Option<&str>) -> Result<&'r Task> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let keys = || {
        let names: Vec<_> = tasks.iter().take(20).filter_map(|task| task.task_key.as_deref()).collect();
        match (names.as_slice(), tasks.len()) {
            ([], 1) => "1".to_owned(),
            ([], count) => format!("1 to {count}"),
            _ => names.join(", "),
        }
    };
    let Some(named) = named else {
        return match tasks {
            [only] => Ok(only),
            _ => Err(Failure::message(format!("This run has {} tasks. Name one of them: {}.", tasks.len(), keys()))),
        };
    };
    let by_key = tasks.iter().find(|task| task.task_key.as_deref() == Some(named));
    let by_id = || tasks.iter().find(|task| task.id.to_string() == named || task.reference.as_str() == named);
    let by_number = || named.parse::<usize>().ok().and_then(|number| tasks.get(number.checked_sub(1)?));
    by_key
        .or_else(by_id)
        .or_else(by_number)
        .ok_or_else(|| Failure::message(format!("This run has no task {named}. It has: {}.", keys())))
}
