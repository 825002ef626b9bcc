//! What an attempt changed in the person's own directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[tokio::test]
async fn what_changed_in_a_dirty_tree_is_found_without_touching_index_or_files() {
    let fixture = Fixture::new();
    fixture.write("a", "one\nmine\nthree\n");
    fixture.write("untracked", "mine\n");
    fixture.write("b", "staged\n");
    fixture.git(&["add", "b"]);
    let lease = fixture.task(Isolation::None);
    let before = fixture.everything();
    let place = fixture.enter(&lease).await.unwrap();
    assert_eq!(fixture.everything(), before, "before");
    fixture.write("a", "one\nmine\nthree\nfour\n");
    fixture.write("untracked", "mine\nits\n");
    fixture.write("new file", "x\ny\n");
    fixture.write("ignored", "x\n");
    fs::remove_file(fixture.top().join("folder/c")).unwrap();
    symlink("/nowhere", fixture.top().join("link")).unwrap();
    let before = fixture.everything();
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    assert_eq!(fixture.everything(), before, "after");
    assert_eq!(
        files(&changed),
        [
            "Modified a +1 -0",
            "Deleted folder/c +0 -1",
            "Added link +1 -0",
            "Added new file +2 -0",
            "Modified untracked +1 -0",
        ]
    );
    assert_eq!((changed.report.added, changed.report.removed, changed.report.kept), (5, 1, false));
    let diff = diff(&changed);
    assert!(
        diff.contains("+four\n") && diff.contains("+its\n") && !diff.contains("+mine") && !diff.contains("staged"),
        "{diff}"
    );
    assert_eq!(fixture.git(&["count-objects"]).split(' ').next(), Some("8"), "nothing was added to the repository");
    drop(place);
    let left: Vec<_> = fs::read_dir(fixture.folder.path().join("state/scratch"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.iter().all(|name| name == "gitconfig"), "{left:?}");
}

#[tokio::test]
async fn commits_of_the_agent_count_and_nothing_counts_where_others_work() {
    let fixture = Fixture::new();
    let place = fixture.enter(&fixture.task(Isolation::None)).await.unwrap();
    fixture.write("b", "2\n");
    fixture.commit("its");
    assert_eq!(files(&fixture.workplaces.changes(&place).await.unwrap()), ["Modified b +1 -1"]);
    let shared = fixture.enter(&fixture.task(Isolation::Shared)).await.unwrap();
    assert!(fixture.workplaces.changes(&shared).await.is_none());
    let outside = Fixture::empty();
    let place = outside.enter(&outside.task(Isolation::None)).await.unwrap();
    assert!(outside.workplaces.changes(&place).await.is_none());
}

#[tokio::test]
async fn a_repository_without_commits_and_one_with_a_conflict_are_compared() {
    let fixture = Fixture::empty();
    fixture.git(&["init", "--quiet", "."]);
    let place = fixture.enter(&fixture.task(Isolation::None)).await.unwrap();
    fixture.write("a", "x\n");
    assert_eq!(files(&fixture.workplaces.changes(&place).await.unwrap()), ["Added a +1 -0"]);

    let fixture = Fixture::new();
    fixture.git(&["checkout", "--quiet", "-b", "other"]);
    fixture.write("b", "other\n");
    fixture.commit("other");
    fixture.git(&["checkout", "--quiet", "main"]);
    fixture.write("b", "main\n");
    fixture.commit("main");
    let merged = Command::new("git").current_dir(fixture.top()).args(["merge", "--quiet", "other"]).output().unwrap();
    assert!(!merged.status.success());
    let place = fixture.enter(&fixture.task(Isolation::None)).await.unwrap();
    fixture.write("a", "x\n");
    let before = fixture.everything();
    assert_eq!(files(&fixture.workplaces.changes(&place).await.unwrap()), ["Modified a +1 -3"]);
    assert_eq!(fixture.everything(), before);
}

#[tokio::test]
async fn large_binary_and_foreign_files_are_named_without_their_contents() {
    let fixture = Fixture::new();
    let place = fixture.enter(&fixture.task(Isolation::None)).await.unwrap();
    let large = fs::File::create(fixture.top().join("large")).unwrap();
    large.set_len(9 << 20).unwrap();
    fs::write(fixture.top().join("binary"), [0, 1, 2, 255]).unwrap();
    let nested = fixture.top().join("nested");
    fs::create_dir(&nested).unwrap();
    git_in(&nested, &["init", "--quiet", "."]);
    write(&nested.join("file"), "not ours\n");
    fixture.write("text", &"line\n".repeat(200_000));
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    assert_eq!(files(&changed), ["Added binary +- --", "Added large +- --", "Added text +200000 -0"]);
    let parts: Vec<Option<&str>> = changed.diff.iter().map(|part| part.path.as_deref()).collect();
    assert_eq!(parts, [Some("binary"), Some("large"), Some("text")]);
    assert!(diff(&changed).len() < 2 << 10 && diff(&changed).contains("is too long"), "{}", diff(&changed).len());
}

/// Programs that the repository's configuration names are not run, nor hooks.
#[tokio::test]
async fn nothing_of_the_repository_is_run() {
    let fixture = Fixture::new();
    let proof = fixture.folder.path().join("proof");
    let program = fixture.folder.path().join("program");
    write(&program, &format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", proof.display()));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.display().to_string();
    let place = fixture.enter(&fixture.task(Isolation::None)).await.unwrap();
    // As an agent could do it.
    for name in
        ["filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.command", "diff.x.textconv", "merge.x.driver"]
    {
        fixture.git(&["config", name, &program]);
    }
    for name in ["core.fsmonitor", "core.pager", "core.editor", "diff.external", "gpg.program", "core.sshCommand"] {
        fixture.git(&["config", name, &program]);
    }
    fixture.git(&["config", "commit.gpgSign", "true"]);
    for hook in
        ["post-checkout", "pre-commit", "post-index-change", "reference-transaction", "post-merge", "post-commit"]
    {
        let file = fixture.top().join(".git/hooks").join(hook);
        fs::copy(&program, &file).unwrap();
    }
    fixture.write(".gitattributes", "* filter=x diff=x merge=x\n");
    fixture.write("b", "changed\n");
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    assert_eq!(files(&changed), ["Added .gitattributes +1 -0", "Modified b +1 -1"]);
    drop(place);
    let _ = fs::remove_file(&proof);
    let (task, changed) = fixture
        .worktree(|tree| {
            write(&tree.join(".gitattributes"), "* filter=x diff=x merge=x\n");
            write(&tree.join("a"), "new\n");
        })
        .await;
    assert_eq!(files(&changed).len(), 2);
    // The person has changed the same lines, so the merge drivers would be asked.
    write(&fixture.top().join("a"), "mine\n");
    Command::new("git").current_dir(fixture.top()).args(["add", "a"]).output().unwrap();
    fixture.git(&["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "commit", "--quiet", "-m", "mine"]);
    let _ = fs::remove_file(&proof);
    assert_eq!(fixture.apply(task).await, (OrderOutcome::Conflicted, vec!["a".to_owned()]));
    assert_eq!(fixture.discard(task).await, OrderOutcome::Discarded);
    assert!(!proof.exists(), "{}", fs::read_to_string(&proof).unwrap());
}

/// Of the person's own configuration counts what is ignored and whom the person trusts, and no program.
#[tokio::test]
async fn what_the_person_ignores_everywhere_is_ignored() {
    let fixture = Fixture::new();
    let (home, proof) = (fixture.folder.path().join("home"), fixture.folder.path().join("proof"));
    write(&home.join("ignored-everywhere"), "*.mine\n");
    let excludes = home.join("ignored-everywhere").display().to_string();
    let config = format!(
        "[core]\n\texcludesFile = {excludes}\n\tfsmonitor = touch {0}\n[alias]\n\tdiff-files = !touch {0}\n[filter \"x\"]\n\tclean = touch {0}\n",
        proof.display()
    );
    write(&home.join(".gitconfig"), &config);
    fixture.write(".gitattributes", "* filter=x\n");
    let place = fixture.enter(&fixture.task(Isolation::None)).await.unwrap();
    fixture.write("notes.mine", "x\n");
    fixture.write("b", "x\n");
    assert_eq!(files(&fixture.workplaces.changes(&place).await.unwrap()), ["Modified b +1 -1"]);
    assert!(!proof.exists());
}
