//! A server that answers with another record than the one that was asked for: what a person does next would be about that one.

use std::time::Duration;

use ensemble_client::Error;
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::refs::Ref;
use ensemble_types::runs::Pend;
use ensemble_types::signatures::ChangesOrder;
use serde_json::{Value, json};

use crate::scripted::{Server, json as reply};

const AT: &str = "2026-03-26T00:00:00.000Z";

fn run(id: RunId) -> Value {
    json!({
        "id": id, "ref": Ref::of(&id), "status": "running", "maxConcurrency": 4, "spread": false, "version": 3,
        "summary": { "total": 1, "queued": 0, "running": 1, "completed": 0, "failed": 0, "cancelled": 0 },
        "createdAt": AT, "updatedAt": AT,
    })
}

fn answer_about(path: &str, run_id: RunId, task_id: TaskId) -> Value {
    let task = json!({
        "id": task_id, "ref": Ref::of(&task_id), "provider": "claude", "prompt": "p", "dependsOn": [], "status": "running", "attempt": 1,
        "createdAt": AT,
    });
    let pended = json!({
        "id": run_id, "ref": Ref::of(&run_id), "status": "running", "terminal": false, "changed": false, "cursor": "Mw",
        "run": run(run_id), "changedTasks": [],
    });
    match path {
        path if path.ends_with("/pend") => pended,
        path if path.contains("/tasks/") => task,
        _ => run(run_id),
    }
}

#[tokio::test]
async fn an_answer_about_another_run_or_task_is_refused() {
    let (asked, other) = ((RunId::generate(), TaskId::generate()), (RunId::generate(), TaskId::generate()));
    for (answered, is_taken) in [(asked, true), (other, false)] {
        let server = Server::start(move |request, _| {
            reply(200, answer_about(&request.path, answered.0, answered.1).to_string())
        })
        .await;
        let client = server.client();
        let (id, task) = asked;
        let order = ChangesOrder { signature: None, signed_body: None };
        let outcomes = [
            client.run(id).await.map(drop),
            client.cancel_run(id, None).await.map(drop),
            client.retry_run(id).await.map(drop),
            client.pend(id, &Pend::default()).await.map(drop),
            client.apply_changes(id, task, &order, Duration::ZERO).await.map(drop),
            client.discard_changes(id, task, &order, Duration::ZERO).await.map(drop),
        ];
        for (at, outcome) in outcomes.into_iter().enumerate() {
            let is_right = if is_taken { outcome.is_ok() } else { matches!(outcome, Err(Error::OtherRecord)) };
            assert!(is_right, "call {at}, {is_taken}: {outcome:?}");
        }
    }
}
