//! What a repository or an agent leaves in a directory to have something run, wait or be shown.

use std::os::unix::fs::{PermissionsExt, symlink};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;
use crate::look::below::Closed;
use ensemble_git::difference;
use ensemble_git::snapshot::{self, Target};

/// A program that leaves a file when it is run.
fn trap(machine: &Machine) -> String {
    let (program, mark) = (machine.own().join("trap"), machine.path("ran"));
    fs::write(&program, format!("#!/bin/sh\ntouch {}\ncat\n", mark.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

#[tokio::test]
async fn nothing_that_a_repository_names_is_run() {
    let machine = Machine::new().await;
    let trap = trap(&machine);
    for name in [
        "core.fsmonitor",
        "core.hooksPath",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "core.askPass",
        "diff.external",
        "filter.f.clean",
        "filter.f.smudge",
        "filter.f.process",
        "diff.d.command",
        "diff.d.textconv",
        "merge.m.driver",
        "gpg.program",
        "credential.helper",
        "interactive.diffFilter",
        "core.gitProxy",
        "trailer.x.command",
        "uploadpack.packObjectsHook",
        "core.alternateRefsCommand",
        "alias.diff-tree",
        "alias.ls-files",
    ] {
        machine.git(&["config", name, &trap]);
    }
    machine.git(&["config", "log.showSignature", "true"]);
    machine.git(&["config", "filter.f.required", "true"]);
    machine.write(".gitattributes", "* filter=f diff=d merge=m\n");
    machine.write("a", "changed\n");
    for hook in ["post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-auto-gc"] {
        let hook = machine.path(".git/hooks").join(hook);
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        symlink(&trap, hook).unwrap();
    }
    let state = machine.look(state("begin")).await;
    assert_eq!(state["fileCount"], 2, "{state}");
    assert!(machine.look(diff("now", "a")).await["text"].as_str().unwrap().contains("+changed"));
    let log = machine.look(json!({"look": "git", "what": "log", "since": "now"})).await;
    assert_eq!(log["commits"].as_array().unwrap().len(), 1);
    machine.paths("").await;
    machine.look_as_guest(May::Approve, file("a")).await;
    assert!(!machine.path("ran").exists());
}

#[tokio::test]
async fn nothing_outside_of_the_directory_is_read() {
    let machine = Machine::before().await;
    machine.write("outside", "hunter2");
    machine.write("project/inside", "in");
    fs::create_dir(machine.path("project/sub")).unwrap();
    for (link, to) in [
        ("out", "../outside"),
        ("absolute", "/etc/passwd"),
        ("up", ".."),
        ("self", "/proc/self/environ"),
        ("magic", "/proc/self/root/etc/passwd"),
        ("loop", "loop"),
        ("in", "inside"),
        ("sub/back", "../inside"),
    ] {
        symlink(to, machine.path("project").join(link)).unwrap();
    }
    machine.begin("project").await;
    for path in
        ["out", "absolute", "up/outside", "self", "magic", "loop", "../outside", "/etc/passwd", "sub/../../outside", ""]
    {
        let shown = machine.look(file(path)).await;
        assert!(shown["data"].is_null() && shown["error"].is_string(), "{path}: {shown}");
    }
    for path in ["in", "sub/back", "./inside"] {
        assert_eq!(machine.look(file(path)).await["data"], "aW4", "{path}");
    }
    let names = machine.paths("").await;
    assert!(!names.iter().any(|name| name.starts_with("up/")), "{names:?}");
    assert!(machine.look(json!({"look": "names", "below": "up", "depth": 1})).await["error"].is_string());
}

#[tokio::test]
async fn what_is_of_git_and_of_this_program_is_shown_to_no_one() {
    let machine = Machine::new().await;
    symlink(".git/config", machine.path("link")).unwrap();
    for path in [".git/config", ".git", ".GIT/config", "folder/../.git/config", "link"] {
        assert!(machine.look(file(path)).await["error"].is_string(), "{path}");
    }
    assert!(!machine.paths("").await.iter().any(|name| name.starts_with(".git/") || name == ".git"));
    // A session around the folder of the host itself.
    let folder = machine.double.host.sessions.parent().unwrap().canonicalize().unwrap();
    fs::write(folder.join("key"), "hunter2").unwrap();
    let around = folder.parent().unwrap();
    let kept = Kept::new(machine.session, "claude".to_owned(), around.to_owned(), "key".to_owned());
    fs::remove_dir_all(machine.own()).unwrap();
    drop(Spool::create(&machine.double.host.sessions, &kept).unwrap());
    machine.double.host.looks.begin(&machine.own(), around).await;
    let name = folder.file_name().unwrap().to_str().unwrap();
    let shown = machine.look(file(&format!("{name}/key"))).await;
    assert_eq!(shown["error"], "not_allowed", "{shown}");
    // In a repository around it, which tracks one of its files.
    let key = format!("{name}/key");
    git_in(around, &["init", "--quiet", "."]);
    git_in(around, &["add", &key]);
    git_in(around, &["commit", "--quiet", "-m", "x"]);
    fs::write(folder.join("key"), "hunter3").unwrap();
    fs::write(around.join("other"), "o").unwrap();
    fs::remove_file(machine.own().join("begin.json")).unwrap();
    machine.double.host.looks.begin(&machine.own(), around).await;
    fs::remove_file(folder.join("key")).unwrap();
    for since in ["now", "begin"] {
        let state = machine.look(state(since)).await;
        assert_eq!(state["fileCount"], i32::from(since == "now"), "{state}");
        assert_eq!(machine.look(diff(since, &key)).await["text"], "");
    }
}

#[test]
fn places_of_tasks_are_open_and_single_files_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().canonicalize().unwrap().join("state");
    let (run, key) = (state.join("workspaces/run"), state.with_file_name("key"));
    fs::create_dir_all(&run).unwrap();
    fs::write(&key, "hunter2").unwrap();
    let closed = |directory: &Path| Closed::for_directory(directory, &[state.clone(), key.clone()]);
    assert!(!closed(&run).has(&run.join("a")));
    for directory in [state.as_path(), &state.join("workspaces"), folder.path()] {
        assert!(closed(directory).has(&run.join("a")), "{}", directory.display());
    }
    assert!(closed(folder.path()).has(&key) && !closed(folder.path()).has(&key.with_file_name("keys")));
}

#[tokio::test]
async fn what_is_written_to_the_configuration_during_a_look_does_not_count() {
    let machine = Machine::new().await;
    let trap = trap(&machine);
    let scratch = Scratch::new(machine.own().join("scratch")).unwrap();
    let noted = Begin::read(&machine.own()).unwrap().unwrap().repository.unwrap();
    let repository = noted.open(&machine.double.host.looks.git, &scratch).await.unwrap();
    machine.git(&["config", "filter.f.clean", &trap]);
    machine.write(".gitattributes", "* filter=f\n");
    machine.write("a", "changed\n");
    let taken = snapshot::take(&repository, Target::Scratch(&scratch)).await.unwrap();
    let changed = difference::entries(&repository, Target::Scratch(&scratch), ("HEAD", &taken.tree)).await.unwrap();
    assert_eq!(changed.len(), 2);
    assert!(!machine.path("ran").exists());
}

#[tokio::test]
async fn a_repository_that_uses_a_foreign_one_shows_nothing_of_it() {
    let machine = Machine::before().await;
    for name in ["private", "project", "later"] {
        fs::create_dir(machine.path(name)).unwrap();
        git_in(&machine.path(name), &["init", "--quiet", "."]);
    }
    machine.write("private/diary", "hunter2");
    git_in(&machine.path("private"), &["add", "diary"]);
    git_in(&machine.path("private"), &["commit", "--quiet", "-m", "x"]);
    let private = machine.path("private/.git").display().to_string();
    machine.write("project/.git/commondir", &private);
    machine.begin("project").await;
    let shown = machine.look(state("now")).await;
    assert!(shown["text"].as_str().unwrap().contains("no git repository"), "{shown}");
    fs::remove_dir_all(machine.own()).unwrap();
    machine.begin("later").await;
    assert_eq!(machine.look(state("now")).await["fileCount"], 0);
    machine.write("later/.git/commondir", &private);
    let shown = machine.look(state("now")).await;
    assert!(shown["text"].as_str().unwrap().contains("another one as its own"), "{shown}");
}

#[tokio::test]
async fn an_index_that_seems_to_be_huge_is_not_copied() {
    let machine = Machine::new().await;
    let index = fs::File::options().write(true).open(machine.path(".git/index")).unwrap();
    for bytes in [1 << 40, 200 << 20] {
        index.set_len(bytes).unwrap();
        let shown = machine.look(state("now")).await;
        assert!(shown["text"].as_str().unwrap().contains("too large"), "{shown}");
    }
}

#[tokio::test]
async fn pipes_and_strange_names_are_named_and_not_opened() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let machine = Machine::new().await;
    mkfifo(&machine.path("pipe"), Mode::S_IRWXU).unwrap();
    fs::write(machine.folder.path().join(OsStr::from_bytes(b"bad\xff")), "x").unwrap();
    machine.write("turn\u{202e}ed", "x");
    machine.write("two\nlines", "x");
    let found = machine.look(json!({"look": "names", "depth": 1})).await;
    let kind = |path: &str| {
        let names = found["names"].as_array().unwrap();
        names.iter().find(|name| name["path"] == path).unwrap_or_else(|| panic!("{path}: {found}"))["kind"].clone()
    };
    for path in ["pipe", "bad\u{fffd}", "turn\\u{202e}ed", "two\\u{a}lines"] {
        assert_eq!(kind(path), "other", "{path}");
        assert!(machine.look(file(path)).await["error"].is_string(), "{path}");
    }
    for path in ["turn\u{202e}ed", "two\nlines", "pipe", "folder"] {
        assert_eq!(machine.look(file(path)).await["error"], "unsupported", "{path}");
    }
    // git would wait for what is never written.
    fs::remove_file(machine.path(".git/index")).unwrap();
    mkfifo(&machine.path(".git/index"), Mode::S_IRWXU).unwrap();
    assert!(machine.look(state("now")).await["error"].is_string());
}

#[tokio::test]
async fn a_file_that_names_a_foreign_repository_shows_nothing_of_it() {
    let machine = Machine::before().await;
    fs::create_dir_all(machine.path("private")).unwrap();
    git_in(&machine.path("private"), &["init", "--quiet", "."]);
    machine.write("private/diary", "hunter2");
    git_in(&machine.path("private"), &["add", "diary"]);
    git_in(&machine.path("private"), &["commit", "--quiet", "-m", "x"]);
    machine.write("project/.git", format!("gitdir: {}\n", machine.path("private/.git").display()));
    machine.begin("project").await;
    let shown = machine.look(state("now")).await;
    assert!(shown["text"].as_str().unwrap().contains("no git repository"), "{shown}");
    git_in(&machine.path("private"), &["worktree", "add", "--quiet", "../tree"]);
    let other = Machine::before().await;
    let tree = machine.path("tree").canonicalize().unwrap();
    other.double.host.looks.begin(other.folder.path(), &tree).await;
    let begin = Begin::read(other.folder.path()).unwrap().unwrap();
    assert!(begin.repository.is_some(), "the repository knows a worktree of its own");
}

#[tokio::test]
async fn a_submodule_is_shown_by_its_commit() {
    let machine = Machine::new().await;
    fs::create_dir(machine.path("sub")).unwrap();
    git_in(&machine.path("sub"), &["init", "--quiet", "."]);
    machine.write("sub/x", "hunter2\n");
    git_in(&machine.path("sub"), &["add", "x"]);
    git_in(&machine.path("sub"), &["commit", "--quiet", "-m", "x"]);
    machine.git(&["add", "sub"]);
    let shown = machine.look(diff("begin", "sub")).await;
    let text = shown["text"].as_str().unwrap();
    assert!(text.contains("+Subproject commit") && !text.contains("hunter2"), "{text}");
    assert!(machine.paths("").await.contains(&"sub/x".to_owned()));
    let names = machine.look_as_guest(May::Approve, json!({"look": "names", "depth": "all"})).await;
    assert_eq!(paths(&names), [".gitignore", "a", "folder", "folder/b", "sub"]);
    assert_eq!(machine.look_as_guest(May::Approve, file("sub/x")).await["error"], "not_allowed");
    machine.write("sub/src/.env.prod", "hunter2");
    for below in ["sub", "sub/src"] {
        let names = json!({"look": "names", "below": below, "depth": 1});
        assert_eq!(machine.look_as_guest(May::Approve, names).await["error"], "not_allowed", "{below}");
    }
    assert!(machine.paths("sub/src").await.contains(&"sub/src/.env.prod".to_owned()));
}

#[tokio::test]
async fn a_huge_tree_is_cut() {
    let machine = Machine::new().await;
    for folder in 0..50 {
        fs::create_dir(machine.path(&format!("d{folder}"))).unwrap();
        for file in 0..1_000 {
            fs::write(machine.path(&format!("d{folder}/{file}")), "").unwrap();
        }
    }
    let found = machine.look(json!({"look": "names", "depth": "all"})).await;
    assert_eq!((paths(&found).len(), found["more"].as_bool()), (5_000, Some(true)));
    let state = machine.look(state("now")).await;
    assert!(state["text"].as_str().unwrap().contains("more than 20000 files"), "{state}");
}
