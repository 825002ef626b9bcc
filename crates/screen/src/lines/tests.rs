//! What the tests of this folder share.

use ensemble_types::ids::{MachineId, TaskId};
use ensemble_types::refs::Ref;
use ensemble_types::runs::Task;

use super::Machines;

/// A task that has completed in 5 s.
pub(super) fn task(key: &str) -> Task {
    let id = TaskId::generate();
    let task = serde_json::json!({
        "id": id, "ref": Ref::of(&id), "taskKey": key, "provider": "codex", "dependsOn": [], "status": "completed", "attempt": 1,
        "createdAt": "1970-01-01T00:00:00.000Z", "startedAt": "1970-01-01T00:00:10.000Z", "finishedAt": "1970-01-01T00:00:15.000Z",
    });
    serde_json::from_value(task).unwrap()
}

/// `m-1` is the machine desk.
pub(super) struct Desk;

impl Machines for Desk {
    fn called(&self, id: &MachineId) -> String {
        assert_eq!(id.as_str(), "m-1");
        "desk (m1000000)".to_owned()
    }

    fn runner_file(&self, _id: Option<&MachineId>) -> String {
        "/me/runner.yaml".to_owned()
    }

    fn explain(&self, text: &str) -> String {
        text.replace("m-1", "desk (m1000000)")
    }
}
