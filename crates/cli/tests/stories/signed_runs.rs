//! What a person reads of a run and then orders is what happens: with the real `claude`, and a server that answers with something else.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::refs::Ref;
use serde_json::{Value, json};

use crate::ensemble::User;
use crate::lies::get;
use crate::lies_table::{Cast, Row};
use crate::lying::LyingServer;
use crate::signed_tasks::{Place, lease};

/// Makes a repository of the project.
pub(crate) fn repository(place: &Place) -> PathBuf {
    let project = place.owner.home().join("project");
    fs::write(project.join("note"), "one\n").unwrap();
    for words in [["init", "--quiet", "."].as_slice(), &["add", "--all"], &["commit", "--quiet", "-m", "first"]] {
        let name = ["-c", "user.name=p", "-c", "user.email=p@example.com"];
        let ended = Command::new("git").current_dir(&project).args(name).args(words).output().unwrap();
        assert!(ended.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }
    project
}

/// Has a task work in a worktree, and gives its run.
pub(crate) fn worktree(place: &Place, command: &str) -> Value {
    let done = place.work_with(&place.owner, &["--worktree"], command);
    assert_eq!(done.code, 0, "{}", done.out);
    place.owner.json(&["show", "last"])
}

/// The path of a run's worktree is there.
pub(crate) fn has_worktree(place: &Place, run: &Value) -> bool {
    let branch = format!("ensemble/{}", run["tasks"][0]["id"].as_str().unwrap());
    let project = place.owner.home().join("project");
    let listed = Command::new("git").current_dir(project).args(["branch", "--list", &branch]).output().unwrap();
    !listed.stdout.is_empty()
}

fn refused(user: &User, words: &[&str], why: &str) {
    let said = user.fail(words);
    assert!(said.contains(why), "{words:?}: {said}");
}

#[test]
fn a_task_is_done_under_the_ids_that_were_signed() {
    let place = Place::new();
    let _runner = place.runner();
    for (name, id) in [("taskId", TaskId::generate().to_string()), ("runId", RunId::generate().to_string())] {
        place.server.lie(move |line, answer| {
            if let Some(lease) = lease(line, answer) {
                lease[name] = json!(id);
            }
        });
        let refused = place.work(&place.owner, "touch evil");
        assert!(refused.code == 1 && refused.out.contains("TASK_NOT_SIGNED"), "{name}: {}", refused.out);
    }
    // A server that makes the run under another id is not followed.
    let other = RunId::generate();
    place.server.lie(move |line, answer| {
        if line == "POST /v1/orchestrator/runs" {
            (answer["id"], answer["ref"]) = (json!(other), json!(Ref::of(&other)));
        }
    });
    let refused = place.work(&place.owner, "sleep 60; touch evil");
    assert!(refused.code == 1 && refused.out.contains("something else than what was asked for"), "{}", refused.out);
    place.server.tell_the_truth();
    assert!(!place.has("evil"));
}

/// The diff without the part about the last file.
fn without_last(diff: &str) -> String {
    diff.rfind("diff --git ").map(|at| diff[..at].to_owned()).unwrap()
}

/// The server shows less of what a task has changed, and tells the truth when it is applied.
pub(crate) fn less_is_shown(_: &LyingServer, rows: &[Row]) {
    rows.iter().for_each(what_is_applied_is_what_was_shown);
}

fn what_is_applied_is_what_was_shown(row: &Row) {
    let place = Place::new();
    let project = repository(&place);
    let _runner = place.runner();
    let made = worktree(&place, "echo two >> note; echo evil > zz");
    let (run, task) = (made["id"].as_str().unwrap(), made["tasks"][0]["id"].as_str().unwrap());
    let diff = get(&place.server, &place.owner, &format!("/v1/orchestrator/runs/{run}/tasks/{task}/diff"));
    let cast = Cast::from([
        ("run", json!(run)),
        ("task", json!(task)),
        ("diff_without_the_last_file", json!(without_last(diff.as_str().unwrap()))),
    ]);
    let lies = |tries: &dyn Fn()| row.tell(&place.server, &cast, tries);
    let nothing_done = |said: &str| {
        assert!(said.contains("has changed since you looked"), "{said}");
        assert_eq!(fs::read_to_string(project.join("note")).unwrap(), "one\n");
        assert!(!project.join("zz").exists() && has_worktree(&place, &made));
    };
    let user = &place.owner;
    lies(&|| {
        let diff = user.succeed(&["diff", run]);
        assert!(diff.contains("+two") && !diff.contains("zz"), "{diff}");
        for words in [["apply", run].as_slice(), &["discard", run, "--yes"]] {
            let ended = user.run(words);
            assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
            nothing_done(&ended.out);
        }
    });
    nothing_done(&user.fail(&["apply", run]));
    // The list alone, on a computer that has shown nothing of it.
    fs::remove_file(user.files().join("seen-changes.json")).unwrap();
    // A program shows it to no person.
    for words in [["--json", "apply", run].as_slice(), &["--json", "discard", run, "--yes"]] {
        refused(user, words, "was not shown on this device");
    }
    lies(&|| {
        let ended = user.run(&["apply", run]);
        assert!(ended.code == 1 && ended.out.contains("1 file, +1") && !ended.out.contains("zz"), "{}", ended.out);
        nothing_done(&ended.out);
    });
    fs::remove_file(user.files().join("seen-changes.json")).ok();

    assert!(user.succeed(&["diff", run]).contains("zz"));
    assert!(user.succeed(&["apply", run]).contains("2 files changed"));
    assert_eq!(fs::read_to_string(project.join("note")).unwrap(), "one\ntwo\n");
    user.succeed(&["discard", run]);
}

#[test]
fn one_worktree_that_is_not_removed_does_not_keep_the_others() {
    let place = Place::new();
    repository(&place);
    let _runner = place.runner();
    let (first, second) = (worktree(&place, "echo two >> note"), worktree(&place, "echo three >> note"));
    let path = format!("GET /v1/orchestrator/runs/{}", first["id"].as_str().unwrap());
    place.server.lie(move |line, answer| {
        if line == path {
            answer["tasks"][0]["changes"]["added"] = json!(7);
        }
    });
    let ended = place.owner.run(&["discard", "--all-ended", "--yes"]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(
        ended.out.contains("has changed since you looked") && ended.out.contains("the worktree is removed"),
        "{}",
        ended.out
    );
    assert!(has_worktree(&place, &first) && !has_worktree(&place, &second));
    // On purpose, also with what was not shown.
    place.owner.succeed(&["discard", "--all-ended", "--yes", "--unseen"]);
    assert!(!has_worktree(&place, &first));
}
