//! Ids of runs and tasks that clients choose.

use ensemble_testkit::{Answer, SOON, eventually, on_both_databases};
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::refs::Ref;
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, execute, number, path, task};

/// A request for a run of two tasks with these ids.
fn request(id: RunId, tasks: [TaskId; 2]) -> Value {
    let [mut first, mut second] = [task("a"), task("b")];
    (first["id"], second["id"]) = (json!(tasks[0]), json!(tasks[1]));
    json!({ "id": id, "tasks": [first, second] })
}

fn new_request() -> Value {
    request(RunId::generate(), [TaskId::generate(), TaskId::generate()])
}

fn taken(answer: &Answer) {
    answer.problem(409, "CONFLICT");
}

on_both_databases! {
    async fn a_run_has_the_ids_that_its_client_has_chosen(on: Backend) {
        let fixture = Fixture::new(on).await;
        let body = new_request();
        let made = fixture.api.post(RUNS, &body).await.expect(201);
        assert_eq!(made["id"], body["id"]);
        for at in 0..2 {
            assert_eq!(made["tasks"][at]["id"], body["tasks"][at]["id"]);
        }
        assert_eq!(made["ref"], Ref::of(&body["id"].as_str().unwrap()).to_string());
        // The same request again is the same run, with a key and without one.
        let again = fixture.api.post(RUNS, &body).await.expect(200);
        assert_eq!((&again["id"], &again["version"]), (&made["id"], &made["version"]));
        let keyed = fixture.api.post_keyed(RUNS, "key-0123456789abcdef", &body).await.expect(200);
        assert_eq!(keyed["id"], made["id"]);
        assert_eq!(number(&fixture, "SELECT count(*) FROM tasks").await, 2);
        // Another request with the id is refused.
        let mut other = body.clone();
        other["title"] = json!("other");
        taken(&fixture.api.post(RUNS, &other).await);
        assert_eq!(fixture.run(&made).await["title"], Value::Null);
    }

    async fn many_requests_with_one_id_make_one_run(on: Backend) {
        let fixture = Fixture::new(on).await;
        let body = new_request();
        let answers = futures_util::future::join_all((0..12).map(|_| fixture.api.post(RUNS, &body))).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:?}");
        assert!(answers.iter().all(|answer| answer.status == 201 || answer.status == 200), "{answers:?}");
        assert_eq!(fixture.api.get(RUNS).await.expect(200)["runs"].as_array().unwrap().len(), 1);
    }

    async fn an_id_of_another_account_is_taken_and_nothing_is_said_of_it(on: Backend) {
        let fixture = Fixture::new(on).await;
        let body = new_request();
        let made = fixture.api.post(RUNS, &body).await.expect(201);
        let stranger = fixture.other_account();
        let refused = stranger.post(RUNS, &body).await;
        let problem = refused.problem(409, "CONFLICT");
        assert!(!refused.text.contains(made["id"].as_str().unwrap()), "{}", refused.text);
        // It reads as any other id that cannot be used.
        let mut own = body.clone();
        own["title"] = json!("other");
        let mine = fixture.api.post(RUNS, &own).await.problem(409, "CONFLICT");
        assert_eq!(mine["detail"], problem["detail"]);
        // Nor does a task get the id of one of another account.
        let mut other = new_request();
        other["tasks"][1]["id"] = body["tasks"][0]["id"].clone();
        taken(&stranger.post(RUNS, &other).await);
        assert_eq!(number(&fixture, "SELECT count(*) FROM runs").await, 1);
        assert_eq!(number(&fixture, "SELECT count(*) FROM tasks").await, 2);
    }

    async fn the_id_of_a_deleted_run_is_not_given_again_for_90_days(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let body = new_request();
        let made = fixture.api.post(RUNS, &body).await.expect(201);
        fixture.api.post(&path(&made, "/cancel"), &json!({})).await.expect(200);
        fixture.api.delete(&path(&made, "")).await.expect(200);
        taken(&fixture.api.post(RUNS, &body).await);
        taken(&fixture.other_account().post(RUNS, &body).await);
        // Also after everything else of it is gone.
        eventually(SOON, async || number(&fixture, "SELECT count(*) FROM tasks").await == 0).await;
        eventually(SOON, async || number(&fixture, "SELECT count(*) FROM deleted_runs WHERE NOT purged").await == 0).await;
        taken(&fixture.api.post(RUNS, &body).await);
        let (days_89, days_91) = match on {
            ensemble_testkit::Backend::Postgres => ("now() - interval '89 days'", "now() - interval '91 days'"),
            ensemble_testkit::Backend::Sqlite => {
                ("(unixepoch() - 89 * 86400) * 1000000", "(unixepoch() - 91 * 86400) * 1000000")
            }
        };
        for (deleted_at, is_taken) in [(days_89, true), (days_91, false)] {
            execute(&fixture.url, &format!("UPDATE deleted_runs SET deleted_at = {deleted_at}")).await;
            fixture.stop().await;
            fixture.start(&[]).await;
            if is_taken {
                taken(&fixture.api.post(RUNS, &body).await);
            } else {
                eventually(SOON, async || number(&fixture, "SELECT count(*) FROM deleted_runs").await == 0).await;
                fixture.api.post(RUNS, &body).await.expect(201);
            }
        }
    }

    async fn a_key_does_not_bring_back_a_deleted_run(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (body, key) = (new_request(), "key-0123456789abcdef");
        let made = fixture.api.post_keyed(RUNS, key, &body).await.expect(201);
        assert_eq!(fixture.api.post_keyed(RUNS, key, &body).await.expect(200)["id"], made["id"]);
        fixture.api.post(&path(&made, "/cancel"), &json!({})).await.expect(200);
        fixture.api.delete(&path(&made, "")).await.expect(200);
        taken(&fixture.api.post_keyed(RUNS, key, &body).await);
    }

    async fn ids_are_of_version_7_and_each_names_one_thing(on: Backend) {
        let fixture = Fixture::new(on).await;
        let v4 = "7f1b6a52-9c2e-4d0a-8b1f-0123456789ab";
        for (change, field) in [
            (("id", json!(v4)), "/id"),
            (("tasks", json!([{ "id": v4, "prompt": "a", "provider": "claude" }])), "/tasks/0/id"),
        ] {
            let mut body = new_request();
            body[change.0] = change.1;
            assert_eq!(fixture.api.post(RUNS, &body).await.bad_fields(), [field]);
        }
        let mut twice = new_request();
        twice["tasks"][1]["id"] = twice["tasks"][0]["id"].clone();
        assert_eq!(fixture.api.post(RUNS, &twice).await.bad_fields(), ["/tasks/1/id"]);
        let mut nonsense = new_request();
        nonsense["id"] = json!("x");
        assert_eq!(fixture.api.post(RUNS, &nonsense).await.status, 400);
        assert_eq!(number(&fixture, "SELECT count(*) FROM runs").await, 0);
    }

    async fn an_id_whose_ref_is_taken_is_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let made = fixture.api.post(RUNS, &new_request()).await.expect(201);
        // Ids with one ref are searched for in days, so the ref is moved instead.
        let next = new_request();
        let of = |id: &Value| Ref::of(&id.as_str().unwrap());
        execute(&fixture.url, &format!("UPDATE runs SET ref = '{}'", of(&next["id"]))).await;
        taken(&fixture.api.post(RUNS, &next).await);
        fixture.other_account().post(RUNS, &next).await.expect(201);
        let mut of_task = new_request();
        let task = of(&of_task["tasks"][0]["id"]);
        execute(&fixture.url, &format!("UPDATE task_specs SET ref = '{task}' WHERE ref = '{}'", made["tasks"][0]["ref"].as_str().unwrap())).await;
        taken(&fixture.api.post(RUNS, &of_task).await);
        of_task["tasks"][0]["id"] = json!(TaskId::generate());
        fixture.api.post(RUNS, &of_task).await.expect(201);
    }
}
