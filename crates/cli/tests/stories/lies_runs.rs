//! What a person reads of a run and then orders is what was signed, whatever the server answers.

use serde_json::json;

use crate::ensemble::User;
use crate::lies::get;
use crate::lies_table::{Cast, Expect, Row};
use crate::lying::LyingServer;
use crate::signed_runs::{has_worktree, repository, worktree};
use crate::signed_tasks::Place;

pub(crate) fn looked_at(_: &LyingServer, rows: &[Row]) {
    let place = Place::new();
    repository(&place);
    let _runner = place.runner();
    let (server, user) = (&place.server, &place.owner);
    // Both have one title and one prompt.
    let [first, second] = [(); 2].map(|()| worktree(&place, "echo two >> note"));
    let [other, run] = [&first, &second]
        .map(|run| get(server, user, &format!("/v1/orchestrator/runs/{}", run["id"].as_str().unwrap())));
    let (id, task) = (run["id"].as_str().unwrap(), &run["tasks"][0]);
    let signed = user.json(&["show", id]);
    assert_eq!(signed["tasks"][0]["prompt"], "[[run echo two >> note]]");
    let cast = Cast::from([
        ("run", json!(id)),
        ("run_ref", run["ref"].clone()),
        ("task", task["id"].clone()),
        ("task_ref", task["ref"].clone()),
        ("other", other),
    ]);
    for row in rows {
        row.tell(server, &cast, || {
            if row.expect == Expect::Ignored {
                let shown = user.json(&["show", id]);
                let of = |run: &serde_json::Value| [&run["title"], &run["tasks"][0]["prompt"]].map(Clone::clone);
                return assert_eq!(of(&shown), of(&signed), "{}", row.id);
            }
            if row.expect == Expect::NotShown {
                assert!(user.json(&["show", id])["tasks"][0]["prompt"].is_null(), "{}", row.id);
                let said = user.succeed(&["show", id]);
                assert!(said.contains("not signed by your devices") || said.contains("not checked: sealed"), "{said}");
            }
            nothing_is_ordered(row, server, user, id);
        });
    }
    assert!(has_worktree(&place, &first) && has_worktree(&place, &second) && !place.has("evil"));
    let title = rows.iter().find(|row| row.expect == Expect::Ignored).unwrap();
    title.tell(server, &cast, || user.succeed(&["discard", id, "--yes"]));
    assert!(has_worktree(&place, &first) && !has_worktree(&place, &second));
}

fn nothing_is_ordered(row: &Row, server: &LyingServer, user: &User, id: &str) {
    for command in [
        ["discard", id, "--yes"].as_slice(),
        &["apply", id],
        &["say", id, "[[run touch evil]]"],
        &["runs", "delete", id, "--yes"],
    ] {
        let said = user.fail(command);
        assert!(said.contains(&row.says), "{}: {command:?}: {said}", row.id);
    }
    let orders = ["/discard", "/apply", "/messages"];
    assert!(!server.requests().iter().any(|line| orders.iter().any(|order| line.contains(order))), "{}", row.id);
}
