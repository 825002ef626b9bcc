//! *Changes* and *Files* as the owner sees them.

use super::*;

#[tokio::test]
async fn changes_are_shown_since_the_last_commit_and_since_the_session_began() {
    let machine = Machine::before().await;
    machine.make_repository();
    machine.git(&["remote", "add", "origin", "https://anna:hunter2@example.org/a.git"]);
    machine.write("a", "one\ntwo\nbefore\n");
    machine.write("untracked", "u\n");
    machine.begin("").await;
    machine.write("a", "one\ntwo\nbefore\nafter\n");
    machine.write("new", "n\n");
    machine.write("secret", "hunter2\n");

    let now = machine.look(state("now")).await;
    let files = |state: &Value| {
        let files = state["files"].as_array().unwrap().iter();
        files.map(|file| format!("{} {}", file["path"].as_str().unwrap(), file["added"])).collect::<Vec<_>>()
    };
    assert_eq!(files(&now), ["a 2", "new 1", "untracked 1"]);
    assert_eq!((now["branch"].as_str(), now["fileCount"].as_u64()), (Some("main"), Some(3)));
    assert_eq!(now["remotes"], json!([{"name": "origin", "url": "https://example.org/a.git"}]));
    let begin = machine.look(state("begin")).await;
    assert_eq!(files(&begin), ["a 1", "new 1"]);
    assert_eq!(machine.look(state("now")).await["seen"], now["seen"]);
    assert_ne!(begin["seen"], now["seen"]);

    let shown = machine.look(diff("begin", "a")).await;
    assert!(shown["text"].as_str().unwrap().ends_with("@@ -1,3 +1,4 @@\n one\n two\n before\n+after\n"), "{shown}");
    assert_eq!(machine.look(diff("now", "folder/b")).await["text"], "");

    machine.git(&["add", "a"]);
    machine.commit("second");
    let log = json!({"look": "git", "what": "log", "since": "begin"});
    let log = machine.look(log).await;
    let commits = log["commits"].as_array().unwrap();
    assert_eq!(commits.len(), 1, "{log}");
    assert_eq!((commits[0]["subject"].as_str(), commits[0]["author"].as_str()), (Some("second"), Some("anna")));
    assert_eq!(files(&machine.look(state("begin")).await), ["a 1", "new 1"], "a commit hides nothing");

    // What is ignored later is not shown as removed.
    machine.git(&["rm", "--quiet", "--cached", "untracked"]);
    machine.write(".gitignore", "secret*\nuntracked\n");
    assert!(!files(&machine.look(state("begin")).await).iter().any(|file| file.starts_with("untracked")));
    assert_eq!(machine.look(diff("begin", "untracked")).await["text"], "");
}

#[tokio::test]
async fn only_the_directory_of_the_session_is_shown() {
    let machine = Machine::before().await;
    machine.make_repository();
    machine.begin("folder").await;
    machine.write("a", "outside\n");
    machine.write("folder/b", "inside\n");
    let state = machine.look(state("now")).await;
    assert_eq!((state["fileCount"].as_u64(), state["files"][0]["path"].as_str()), (Some(1), Some("b")));
    assert_eq!(machine.look(diff("begin", "../a")).await["text"], "");
    assert!(machine.look(diff("begin", "b")).await["text"].as_str().unwrap().contains("+inside"));
    assert_eq!(machine.paths("").await, ["b"]);
    assert_eq!(machine.look(file("../a")).await["error"], "unsupported");
}

#[tokio::test]
async fn names_and_files_are_shown_with_what_git_ignores() {
    let machine = Machine::new().await;
    machine.write("secret/key", "hunter2");
    machine.write("secret.txt", "hunter2");
    let found = machine.look(json!({"look": "names", "depth": "all"})).await;
    assert_eq!(paths(&found), [".gitignore", "a", "folder", "folder/b", "secret", "secret.txt"]);
    let ignored: Vec<_> = found["names"].as_array().unwrap().iter().filter(|name| name["ignored"] == true).collect();
    assert_eq!(ignored.len(), 2, "{found}");
    assert_eq!(machine.paths("secret").await, ["secret/key"]);
    let one = machine.look(json!({"look": "names", "depth": 1})).await;
    assert!(!paths(&one).contains(&"folder/b".to_owned()));
    let shown = machine.look(file("folder/b")).await;
    assert_eq!(
        (shown["kind"].as_str(), shown["data"].as_str(), shown["bytes"].as_u64()),
        (Some("text"), Some("Ygo"), Some(2))
    );
    assert_eq!(machine.look(file("gone")).await["error"], "superseded");
    let days = fs::read_dir(machine.double.host.sessions.with_file_name("looked")).unwrap();
    let log: String = days.map(|day| fs::read_to_string(day.unwrap().path()).unwrap()).collect();
    assert_eq!(log.lines().filter(|line| line.contains("\"look.file\"")).count(), 2, "{log}");
}

#[tokio::test]
async fn outside_of_git_there_are_names_and_files_and_no_changes() {
    let machine = Machine::before().await;
    machine.write(".env", "hunter2");
    machine.write("a", "one");
    machine.begin("").await;
    let found = machine.look(json!({"look": "names", "depth": "all"})).await;
    assert_eq!(
        found["names"],
        json!([
            {"path": ".env", "kind": "file", "bytes": 7, "ignored": true}, {"path": "a", "kind": "file", "bytes": 3},
        ])
    );
    let state = machine.look(state("now")).await;
    assert!(state["text"].as_str().unwrap().contains("no git repository"), "{state}");
}

#[tokio::test]
async fn another_directory_or_repository_in_its_place_is_not_shown() {
    let machine = Machine::before().await;
    fs::create_dir(machine.path("project")).unwrap();
    git_in(&machine.path("project"), &["init", "--quiet", "."]);
    machine.begin("project").await;
    assert_eq!(machine.look(state("now")).await["fileCount"], 0);
    fs::rename(machine.path("project/.git"), machine.path("old")).unwrap();
    git_in(&machine.path("project"), &["init", "--quiet", "."]);
    let other = machine.look(state("now")).await;
    assert_eq!(other["error"], "superseded");
    fs::rename(machine.path("project"), machine.path("away")).unwrap();
    fs::create_dir(machine.path("project")).unwrap();
    assert_eq!(machine.look(json!({"look": "names", "depth": 1})).await["error"], "superseded");
    let (host, directory) = (&machine.double.host, machine.path("project").canonicalize().unwrap());
    host.looks.begin_again(&machine.own(), &directory).await;
    assert_eq!(machine.look(json!({"look": "names", "depth": 1})).await["error"], "superseded");
    assert!(machine.own().join("begin/objects").is_dir(), "what was noted stays");
}

#[tokio::test]
async fn a_beginning_lasts_when_the_device_has_another_number() {
    let machine = Machine::new().await;
    let directory = machine.path("").canonicalize().unwrap();
    machine.write("a", "two\n");
    let before = machine.look(state("begin")).await;
    let note = machine.own().join("begin.json");
    let mut begin: Value = serde_json::from_slice(&fs::read(&note).unwrap()).unwrap();
    for place in ["/directory/device", "/repository/topIs/device", "/repository/gitDirIs/device"] {
        let device = begin.pointer_mut(place).unwrap();
        *device = json!(device.as_u64().unwrap() + 1);
    }
    fs::write(&note, begin.to_string()).unwrap();
    assert_eq!(machine.look(state("begin")).await["error"], "superseded");
    machine.double.host.looks.begin_again(&machine.own(), &directory).await;
    assert_eq!(machine.look(state("begin")).await, before);
}

#[tokio::test]
async fn a_beginning_that_was_not_noted_is_not_made_up() {
    let machine = Machine::new().await;
    let directory = machine.path("").canonicalize().unwrap();
    machine.write("a", "two\n");
    fs::remove_file(machine.own().join("begin.json")).unwrap();
    assert_eq!(machine.look(file("a")).await["error"], "unsupported");
    machine.double.host.looks.begin_again(&machine.own(), &directory).await;
    assert_eq!(machine.look(state("now")).await["fileCount"], 1);
    assert_eq!(machine.look(file("a")).await["kind"], "text");
    for look in [state("begin"), diff("begin", "a"), json!({"look": "git", "what": "log", "since": "begin"})] {
        let shown = machine.look(look).await;
        assert!(shown["text"].as_str().unwrap().contains("is not known"), "{shown}");
    }
}

#[tokio::test]
async fn a_snapshot_is_kept_for_thirty_days_and_then_the_commit_counts() {
    let machine = Machine::new().await;
    machine.write("a", "two\n");
    let kept = machine.own().join("begin/objects");
    assert!(kept.is_dir());
    let day = Duration::from_secs(24 * 3_600);
    begin::sweep(&machine.double.host.sessions, wall_clock() + day * 29).unwrap();
    assert!(kept.is_dir());
    begin::sweep(&machine.double.host.sessions, wall_clock() + day * 31).unwrap();
    assert!(!kept.exists());
    let state = machine.look(state("begin")).await;
    assert_eq!((state["fileCount"].as_u64(), state["notes"].as_array().unwrap().len()), (Some(1), 1));
}
