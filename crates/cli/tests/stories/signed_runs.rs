//! What a person reads of a run and then orders is what happens: with the real `claude`, and a server that answers with something else.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::refs::Ref;
use serde_json::{Value, json};

use crate::ensemble::User;
use crate::signed_tasks::{Place, lease};

const NOT_SIGNED: &str = "not signed by your devices";

/// Makes a repository of the project.
fn repository(place: &Place) -> PathBuf {
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
fn worktree(place: &Place, command: &str) -> Value {
    let done = place.work_with(&place.owner, &["--worktree"], command);
    assert_eq!(done.code, 0, "{}", done.out);
    place.owner.json(&["show", "last"])
}

/// The path of a run's worktree is there.
fn has_worktree(place: &Place, run: &Value) -> bool {
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
fn a_run_is_not_taken_for_another_one() {
    let place = Place::new();
    repository(&place);
    let _runner = place.runner();
    // Both have one title and one prompt.
    let (first, second) = (worktree(&place, "echo two >> note"), worktree(&place, "echo two >> note"));
    let id = second["id"].as_str().unwrap().to_owned();
    let orders = [
        vec!["discard", &id, "--yes"],
        vec!["apply", &id],
        vec!["say", &id, "[[run touch evil]]"],
        vec!["runs", "delete", &id, "--yes"],
    ];
    let path = format!("GET /v1/orchestrator/runs/{id}");
    // The other run as it is, under the name of this one, and with its task under the name of that one's.
    for (level, why) in [(0, "something else than what was asked for"), (1, NOT_SIGNED), (2, NOT_SIGNED)] {
        let (path, first, second) = (path.clone(), first.clone(), second.clone());
        place.server.lie(move |line, answer| {
            if line == path {
                *answer = first.clone();
                if level >= 1 {
                    (answer["id"], answer["ref"]) = (second["id"].clone(), second["ref"].clone());
                }
                if level == 2 {
                    let task = &second["tasks"][0];
                    (answer["tasks"][0]["id"], answer["tasks"][0]["ref"]) = (task["id"].clone(), task["ref"].clone());
                }
            }
        });
        for words in &orders {
            refused(&place.owner, words, why);
        }
        if level > 0 {
            assert!(place.owner.succeed(&["show", &id]).contains(NOT_SIGNED));
        }
        let sent = place.server.requests();
        assert!(
            !sent.iter().any(|line| line.contains("/discard") || line.contains("/apply") || line.contains("/messages"))
        );
    }
    place.server.tell_the_truth();
    assert!(has_worktree(&place, &first) && has_worktree(&place, &second) && !place.has("evil"));

    // Its title is what was signed, whatever the server says.
    let path = format!("GET /v1/orchestrator/runs/{id}");
    place.server.lie(move |line, answer| {
        if line == path {
            (answer["title"], answer["tasks"][0]["prompt"]) = (json!("Something harmless"), json!("harmless"));
        }
    });
    let shown = place.owner.json(&["show", &id]);
    assert_eq!((&shown["title"], &shown["tasks"][0]["prompt"]), (&second["title"], &second["tasks"][0]["prompt"]));
    place.owner.succeed(&["discard", &id, "--yes"]);
    place.server.tell_the_truth();
    assert!(has_worktree(&place, &first) && !has_worktree(&place, &second));
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

#[test]
fn what_is_applied_is_what_was_shown() {
    let place = Place::new();
    let project = repository(&place);
    let _runner = place.runner();
    let made = worktree(&place, "echo two >> note; echo evil > zz");
    let (run, task) = (made["id"].as_str().unwrap(), made["tasks"][0]["id"].as_str().unwrap());
    let (of_run, of_diff) = (format!("GET /v1/orchestrator/runs/{run}"), format!("/tasks/{task}/diff"));
    // The server shows one file less, in the list and in the diff, and tells the truth when it is applied.
    let lie = move |line: &str, answer: &mut Value| {
        if line.contains(&of_diff) {
            *answer = json!(without_last(answer.as_str().unwrap()));
        } else if line == of_run {
            let changes = &mut answer["tasks"][0]["changes"];
            changes["files"].as_array_mut().unwrap().pop();
            (changes["fileCount"], changes["added"]) = (json!(1), json!(1));
        }
    };
    let lies = || place.server.lie(lie.clone());
    let nothing_done = |said: &str| {
        assert!(said.contains("has changed since you looked"), "{said}");
        assert_eq!(fs::read_to_string(project.join("note")).unwrap(), "one\n");
        assert!(!project.join("zz").exists() && has_worktree(&place, &made));
    };
    let user = &place.owner;
    lies();
    let diff = user.succeed(&["diff", run]);
    assert!(diff.contains("+two") && !diff.contains("zz"), "{diff}");
    for words in [["apply", run].as_slice(), &["discard", run, "--yes"]] {
        let ended = user.run(words);
        assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
        nothing_done(&ended.out);
    }
    place.server.tell_the_truth();
    nothing_done(&user.fail(&["apply", run]));
    // The list alone, on a computer that has shown nothing of it.
    fs::remove_file(user.files().join("seen-changes.json")).unwrap();
    // A program shows it to no person.
    for words in [["--json", "apply", run].as_slice(), &["--json", "discard", run, "--yes"]] {
        refused(user, words, "was not shown on this device");
    }
    lies();
    let ended = user.run(&["apply", run]);
    assert!(ended.code == 1 && ended.out.contains("1 file, +1") && !ended.out.contains("zz"), "{}", ended.out);
    nothing_done(&ended.out);
    place.server.tell_the_truth();
    fs::remove_file(user.files().join("seen-changes.json")).ok();

    assert!(user.succeed(&["diff", run]).contains("zz"));
    assert!(user.succeed(&["apply", run]).contains("2 files changed"));
    assert_eq!(fs::read_to_string(project.join("note")).unwrap(), "one\ntwo\n");
    user.succeed(&["discard", run]);
}

#[test]
fn nothing_is_ordered_about_a_task_that_the_server_calls_a_session() {
    let place = Place::new();
    repository(&place);
    let _runner = place.runner();
    let made = worktree(&place, "echo two >> note");
    let run = made["id"].as_str().unwrap();
    let path = format!("GET /v1/orchestrator/runs/{run}");
    place.server.lie(move |line, answer| {
        if line == path {
            let task = answer["tasks"][0].as_object_mut().unwrap();
            task.remove("signed");
            task.insert("session".to_owned(), json!(true));
            task.insert("prompt".to_owned(), json!("harmless"));
        }
    });
    let user = &place.owner;
    let orders = [
        vec!["discard", run, "--yes"],
        vec!["apply", run],
        vec!["say", run, "x"],
        vec!["runs", "delete", run, "--yes"],
    ];
    for words in &orders {
        refused(user, words, "It is sealed for its machine and cannot be checked here");
    }
    let sent = place.server.requests();
    assert!(
        !sent.iter().any(|line| line.contains("/discard") || line.contains("/apply") || line.contains("/messages"))
    );
    assert!(user.json(&["show", run])["tasks"][0]["prompt"].is_null());
    assert!(user.succeed(&["show", run]).contains("not checked: sealed"));
    place.server.tell_the_truth();
    user.succeed(&["discard", run, "--yes"]);
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
