//! What people read of runs: what a device of theirs has signed. A server that answers with another run, or says that a task is another
//! one, has a person sign for what they do not see.

use std::collections::HashSet;
use std::time::Duration;

use ensemble_protocol::seal::{ClearTask, read_clear};
use ensemble_types::devices::{ListedDevice, Role};
use ensemble_types::ids::RunId;
use ensemble_types::runs::{Run, Signed, Task};

use crate::account::Account;
use crate::error::{Error, Result};

/// A key that no list had is not looked for again within this time: a run may have many made-up ones.
const LISTS_AGE: Duration = Duration::from_secs(60);

/// Why a good signature does not prove the title of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    NotSigned,
    /// It is sealed for its machine, as the server says.
    Sealed,
}

impl Doubt {
    /// Of a task that [`Account::take_signed`] has seen.
    pub fn of(task: &Task) -> Option<Self> {
        let doubt = if task.session.is_some() { Self::Sealed } else { Self::NotSigned };
        task.signed.is_none().then_some(doubt)
    }
}

/// What the owner's devices have signed as a task about which something is ordered.
pub fn must_be_signed<'t>(run: &Run, task: &'t Task) -> Result<&'t Signed> {
    let number = run.tasks.iter().flatten().position(|other| other.id == task.id).unwrap_or_default();
    let (called, run) = (task.called(number), run.reference);
    task.signed.as_ref().ok_or_else(|| match task.session {
        Some(_) => Error::TaskSealed { task: called, run },
        None => Error::TaskNotSigned { task: called, run },
    })
}

impl Account {
    /// A run with its tasks, as its owner's devices have signed it.
    pub async fn run(&self, id: RunId) -> Result<Run> {
        let mut run = self.client.run(id).await?;
        self.take_signed(&mut run).await?;
        Ok(run)
    }

    /// Puts what was signed in the place of what the server says. Afterwards a task has `signed` only when that is good.
    pub async fn take_signed(&self, run: &mut Run) -> Result<()> {
        let signers = self.signers(run).await?;
        let (id, mut titles) = (run.id, Vec::<Option<String>>::new());
        let tasks = run.tasks.as_deref_mut().unwrap_or_default();
        for (at, task) in tasks.iter_mut().enumerate() {
            match signed_of(task, (id, at), &signers) {
                Some(signed) => {
                    titles.push(signed.run_title);
                    (task.title, task.task_key, task.prompt) = (signed.title, signed.task_key, Some(signed.prompt));
                }
                // What a session does is sealed for its machine, with its title. The server alone says that it is one.
                None if task.session.is_some() => (task.signed, task.prompt) = (None, None),
                None => (task.signed, task.title, task.prompt) = (None, None, None),
            }
        }
        let is_sealed = tasks.iter().any(|task| task.session.is_some());
        titles.dedup();
        run.title = match titles.as_slice() {
            [title] => title.clone(),
            [] => run.title.take().filter(|_| is_sealed),
            _ => None,
        };
        Ok(())
    }

    /// The keys that may have signed the tasks of a run: those of devices that the account has or had.
    async fn signers(&self, run: &Run) -> Result<HashSet<String>> {
        let signs = |device: &&ListedDevice| matches!(device.role, Role::Primary | Role::Linked);
        let keys = |devices: &[ListedDevice]| devices.iter().filter(signs).map(|device| device.key.clone()).collect();
        let mut known: HashSet<String> = keys(&self.own().list.body().devices);
        let signed = run.tasks.iter().flatten().filter_map(|task| task.signed.as_ref());
        if signed.clone().any(|signed| !known.contains(&*signed.signature.key)) {
            known.extend::<HashSet<String>>(keys(&self.every_device(LISTS_AGE).await?));
        }
        Ok(known)
    }
}

/// What was signed as this task of this run, at this place in it.
fn signed_of(task: &Task, (run, at): (RunId, usize), signers: &HashSet<String>) -> Option<ClearTask> {
    let signed = task.signed.as_ref().filter(|signed| signers.contains(&*signed.signature.key))?;
    let body = read_clear(signed).ok()?;
    let is_it = (body.run_id, body.task_id) == (run, task.id);
    let is_here = body.position.is_none_or(|position| usize::try_from(position) == Ok(at));
    (is_it && is_here).then_some(body)
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::AccountKey;
    use ensemble_protocol::seal::{SessionTask, SignedAs, sign_clear};
    use ensemble_types::ids::TaskId;
    use ensemble_types::refs::Ref;
    use ensemble_types::runs::{Provider, TaskSession};

    use super::*;

    fn task() -> Task {
        let id = TaskId::generate();
        let task = serde_json::json!({
            "id": id, "ref": Ref::of(&id), "taskKey": "a", "title": null, "prompt": "x", "sessionId": null, "provider": "codex",
            "model": null, "workingDirectory": null, "machineId": null, "dependsOn": [], "status": "completed", "attempt": 1,
            "waitingFor": null, "waitingReason": null, "error": null, "permission": null, "permissionDenials": null, "base": null,
            "isolation": "none", "changes": null, "outputSummary": null, "exitCode": null, "usage": null, "maxCostUsd": null,
            "providerSessionId": null, "stale": false, "createdAt": "2026-01-01T00:00:00.000Z", "startedAt": null,
            "finishedAt": null,
        });
        serde_json::from_value(task).unwrap()
    }

    fn signed(task: &mut Task, run: RunId, position: u32, by: &AccountKey) {
        let at = ensemble_types::time::Timestamp::from_unix_seconds(1_800_000_000);
        let body = ClearTask {
            run_id: run,
            task_id: task.id,
            run_title: None,
            title: Some("signed".to_owned()),
            task_key: None,
            position: Some(position),
            prompt: "p".to_owned(),
            provider: Provider::Claude,
            model: None,
            working_directory: None,
            permission: None,
            allowed_tools: Vec::new(),
            isolation: Default::default(),
            depends_on: Vec::new(),
            base: None,
            machine_id: None,
            nonce: SessionTask::nonce(),
            at,
            expires: at,
        };
        let body = serde_json::to_string(&body).unwrap();
        task.signed = Some(sign_clear(SignedAs::Task, &body, None, by).unwrap());
    }

    #[test]
    fn a_session_that_the_server_made_up_is_not_ordered_about() {
        let mut sealed = task();
        assert_eq!(Doubt::of(&sealed), Some(Doubt::NotSigned));
        sealed.session = Some(TaskSession::Start);
        assert_eq!(Doubt::of(&sealed), Some(Doubt::Sealed));
        signed(&mut sealed, RunId::generate(), 0, &AccountKey::generate());
        assert_eq!(Doubt::of(&sealed), None);
    }

    #[test]
    fn a_task_is_shown_as_it_was_signed_in_its_run_and_at_its_place() {
        let (device, stranger, run) = (AccountKey::generate(), AccountKey::generate(), RunId::generate());
        let signers = HashSet::from([device.public_key()]);
        let title = |task: &Task, run, at| signed_of(task, (run, at), &signers).and_then(|signed| signed.title);
        let mut good = task();
        assert_eq!(title(&good, run, 0), None, "nothing is signed");
        signed(&mut good, run, 0, &device);
        assert_eq!(title(&good, run, 0).as_deref(), Some("signed"));
        assert_eq!(title(&good, RunId::generate(), 0), None, "another run");
        assert_eq!(title(&good, run, 1), None, "another place");
        assert_eq!(title(&Task { id: TaskId::generate(), ..good.clone() }, run, 0), None, "another task");
        signed(&mut good, run, 0, &stranger);
        assert_eq!(title(&good, run, 0), None, "a stranger");
    }
}
