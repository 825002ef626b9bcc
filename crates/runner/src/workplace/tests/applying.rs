//! Merges of worktrees into the person's working tree.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::workplace::apply::apply;
use ensemble_git::repository::Repository;

#[tokio::test]
async fn changes_are_merged_into_a_dirty_tree_that_has_moved_on_and_nothing_is_staged() {
    let fixture = Fixture::new();
    let (task, changed) = fixture
        .worktree(|tree| {
            write(&tree.join("a"), "one\ntwo\nTHREE\n");
            write(&tree.join("new/deep/file"), "n\n");
            fs::remove_file(tree.join("folder/c")).unwrap();
            symlink("a", tree.join("link")).unwrap();
            write(&tree.join("run.sh"), "#!/bin/sh\n");
            fs::set_permissions(tree.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        })
        .await;
    assert!(changed.report.kept);
    assert_eq!(
        files(&changed),
        [
            "Modified a +1 -1",
            "Deleted folder/c +0 -1",
            "Added link +1 -0",
            "Added new/deep/file +1 -0",
            "Added run.sh +1 -0"
        ]
    );
    assert_eq!(fixture.read("a"), "one\ntwo\nthree\n", "the person's tree is as it was");
    // Meanwhile the person has committed to the same file, and has changes in others.
    fixture.write("a", "ONE\ntwo\nthree\n");
    fixture.commit("second");
    fixture.write("b", "mine\n");
    fixture.write("mine", "untracked\n");
    fixture.write("staged", "staged\n");
    fixture.git(&["add", "staged"]);
    let index = fs::read(fixture.top().join(".git/index")).unwrap();

    assert_eq!(fixture.apply(task).await, (OrderOutcome::Applied, vec![]));
    assert_eq!(fs::read(fixture.top().join(".git/index")).unwrap(), index);
    assert_eq!(fixture.read("a"), "ONE\ntwo\nTHREE\n");
    assert_eq!((fixture.read("b"), fixture.read("mine")), ("mine\n".to_owned(), "untracked\n".to_owned()));
    assert_eq!(fixture.read("new/deep/file"), "n\n");
    assert!(!fixture.top().join("folder").exists());
    assert_eq!(fs::read_link(fixture.top().join("link")).unwrap(), Path::new("a"));
    assert_eq!(fs::metadata(fixture.top().join("run.sh")).unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(
        fixture.git(&["status", "--porcelain"]),
        " M a\n M b\n D folder/c\nA  staged\n?? link\n?? mine\n?? new/\n?? run.sh\n"
    );
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied, "the same again finds everything there");
    let before = fixture.everything();
    assert_eq!(fixture.discard(task).await, OrderOutcome::Discarded);
    let is_branch = |entry: &&Known| entry.0.starts_with(fixture.top().join(".git/refs/heads/ensemble"));
    let kept: Vec<_> = before.iter().filter(|entry| !is_branch(entry)).cloned().collect();
    assert_eq!(fixture.everything(), kept, "discard removes the branch, and nothing of the person");
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(fixture.git(&["branch", "--list", "ensemble/*"]), "");
    assert_eq!(fixture.discard(task).await, OrderOutcome::Lost);
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Lost);
}

#[tokio::test]
async fn uncommitted_untracked_and_ignored_files_are_never_overwritten() {
    let fixture = Fixture::new();
    let (task, _) = fixture
        .worktree(|tree| {
            write(&tree.join("a"), "its\n");
            write(&tree.join("b"), "its\n");
            write(&tree.join("new"), "its\n");
            write(&tree.join("fine"), "its\n");
            write(&tree.join("dir/file"), "its\n");
            write(&tree.join("far/file"), "its\n");
            fs::remove_file(tree.join("folder/c")).unwrap();
            git_in(tree, &["add", "--all"]);
            write(&tree.join("ignored-but-added"), "its\n");
            git_in(tree, &["add", "--force", "ignored-but-added"]);
        })
        .await;
    fixture.write("a", "mine\n");
    fixture.write("b", "mine, staged\n");
    fixture.git(&["add", "b"]);
    fixture.write("new", "mine\n");
    fixture.write("ignored-but-added", "mine\n");
    fixture.write("dir", "a file where a folder is wanted\n");
    fixture.write("folder/c", "mine\n");
    let elsewhere = fixture.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, fixture.top().join("far")).unwrap();
    let before = fixture.everything();
    let (outcome, files) = fixture.apply(task).await;
    assert_eq!(outcome, OrderOutcome::Conflicted);
    assert_eq!(files, ["a", "b", "dir/file", "far/file", "folder/c", "ignored-but-added", "new"]);
    assert_eq!(fixture.everything(), before, "nothing is changed");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    // One by one, the person makes room.
    for path in ["dir", "far", "ignored-but-added", "new"] {
        fs::remove_file(fixture.top().join(path)).unwrap();
    }
    fixture.git(&["checkout", "--quiet", "HEAD", "--", "a", "b", "folder/c"]);
    assert_eq!(fixture.apply(task).await, (OrderOutcome::Applied, vec![]));
    assert_eq!((fixture.read("a"), fixture.read("far/file")), ("its\n".to_owned(), "its\n".to_owned()));
}

#[tokio::test]
async fn conflicts_change_nothing_and_can_be_tried_again() {
    let fixture = Fixture::new();
    let (task, _) = fixture
        .worktree(|tree| {
            write(&tree.join("a"), "its\n");
            write(&tree.join("b"), "its\n");
            write(&tree.join("folder/c"), "its\n");
        })
        .await;
    fixture.write("a", "mine\n");
    fs::remove_file(fixture.top().join("folder/c")).unwrap();
    fixture.commit("mine");
    let before = fixture.everything();
    let expected = (OrderOutcome::Conflicted, vec!["a".to_owned(), "folder/c".to_owned()]);
    assert_eq!(fixture.apply(task).await, expected);
    assert_eq!(fixture.everything(), before);
    fixture.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied);
    assert_eq!(fixture.read("a"), "its\n");
}

#[tokio::test]
async fn what_the_person_has_already_is_no_conflict() {
    let fixture = Fixture::new();
    let (task, _) = fixture
        .worktree(|tree| {
            write(&tree.join("a"), "same\n");
            write(&tree.join("new"), "same\n");
            fs::remove_file(tree.join("b")).unwrap();
            write(&tree.join("folder/c"), "its\n");
        })
        .await;
    fixture.write("a", "same\n");
    fixture.write("new", "same\n");
    fs::remove_file(fixture.top().join("b")).unwrap();
    assert_eq!(fixture.apply(task).await, (OrderOutcome::Applied, vec![]));
    assert_eq!(fixture.read("folder/c"), "its\n");
}

#[tokio::test]
async fn detached_heads_and_other_branches_are_merged_into() {
    let fixture = Fixture::new();
    let (task, _) = fixture.worktree(|tree| write(&tree.join("new"), "its\n")).await;
    fixture.git(&["checkout", "--quiet", "--detach"]);
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied);
    assert_eq!(fixture.read("new"), "its\n");
    assert_eq!(fixture.git(&["rev-parse", "HEAD"]), fixture.git(&["rev-parse", "main"]));
    let (task, _) = fixture.worktree(|tree| write(&tree.join("newer"), "its\n")).await;
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied);
}

#[tokio::test]
async fn the_commits_of_submodules_are_left_to_the_person() {
    let fixture = Fixture::new();
    let library = fixture.folder.path().join("library");
    fs::create_dir(&library).unwrap();
    git_in(&library, &["init", "--quiet", "."]);
    write(&library.join("file"), "1\n");
    git_in(&library, &["add", "--all"]);
    git_in(&library, &["commit", "--quiet", "-m", "1"]);
    fixture.git(&["submodule", "--quiet", "add", &library.display().to_string(), "sub"]);
    fixture.commit("sub");
    // A change of another file, next to a submodule that is not there in the worktree.
    let (task, changed) = fixture.worktree(|tree| write(&tree.join("b"), "its\n")).await;
    assert_eq!(files(&changed), ["Modified b +1 -1"]);
    write(&fixture.top().join("sub/file"), "mine, in the submodule\n");
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied);
    assert_eq!(fixture.read("sub/file"), "mine, in the submodule\n");
    // A change of the submodule's commit.
    let head = git_in(&library, &["rev-parse", "HEAD"]).trim().to_owned();
    let other = head.chars().rev().collect::<String>();
    let (task, _) = fixture
        .worktree(|tree| {
            git_in(tree, &["update-index", "--cacheinfo", &format!("160000,{other},sub")]);
            git_in(tree, &["commit", "--quiet", "-m", "another commit"]);
        })
        .await;
    assert_eq!(fixture.apply(task).await, (OrderOutcome::Conflicted, vec!["sub".to_owned()]));
}

#[tokio::test]
async fn a_merge_that_fails_half_way_leaves_the_tree_as_it_was() {
    let fixture = Fixture::new();
    let (task, _) = fixture
        .worktree(|tree| {
            write(&tree.join("a"), "its\n");
            // A file that becomes a folder is removed first.
            fs::remove_file(tree.join("b")).unwrap();
            write(&tree.join("b/file"), "its\n");
            write(&tree.join("new"), "its\n");
        })
        .await;
    let texts = || fixture.everything().into_iter().map(|known| (known.0, known.4)).collect::<Vec<_>>();
    let before = texts();
    let shared = &fixture.workplaces.0;
    let worktree = shared.worktrees.find(task).unwrap().unwrap();
    let source = Repository::open(&shared.git, worktree.source.clone(), worktree.source_git_dir.clone()).await.unwrap();
    // git cannot write the index that it writes files from.
    let scratch = fixture.workplaces.new_scratch().unwrap();
    fs::create_dir(scratch.join("merged.lock")).unwrap();
    assert!(apply(&source, &worktree.branch, None, &scratch).await.is_err());
    assert_eq!(texts(), before);
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied);
    assert_eq!((fixture.read("b/file"), fixture.read("new")), ("its\n".to_owned(), "its\n".to_owned()));
}

#[tokio::test]
async fn a_second_merge_of_a_worktree_replaces_what_the_first_one_wrote() {
    let fixture = Fixture::new();
    let lease = fixture.task(Isolation::Worktree);
    let work = async |work: &dyn Fn(&Path)| {
        let place = fixture.enter(&lease).await.unwrap();
        work(&path(&place));
        fixture.workplaces.changes(&place).await.unwrap();
    };
    work(&|tree| {
        write(&tree.join("a"), "one\ntwo\nfirst\n");
        write(&tree.join("b"), "first\n");
        write(&tree.join("new"), "first\n");
        write(&tree.join("gone"), "first\n");
    })
    .await;
    assert_eq!(fixture.apply(lease.task_id).await.0, OrderOutcome::Applied);
    // The agent continues. It takes back what it did to b and gone.
    work(&|tree| {
        write(&tree.join("a"), "one\ntwo\nsecond\n");
        write(&tree.join("b"), "b\n");
        write(&tree.join("new"), "second\n");
        fs::remove_file(tree.join("gone")).unwrap();
    })
    .await;
    assert_eq!(fixture.apply(lease.task_id).await, (OrderOutcome::Applied, Vec::new()));
    assert_eq!(["a", "b", "new"].map(|file| fixture.read(file)), ["one\ntwo\nsecond\n", "b\n", "second\n"]);
    assert!(!fixture.top().join("gone").exists());
    assert_eq!(fixture.git(&["status", "--porcelain"]), " M a\n?? new\n", "nothing is staged");

    // What the person made of it since is the person's.
    fixture.write("new", "mine\n");
    work(&|tree| {
        write(&tree.join("a"), "third\n");
        write(&tree.join("new"), "third\n");
    })
    .await;
    assert_eq!(fixture.apply(lease.task_id).await, (OrderOutcome::Conflicted, vec!["new".to_owned()]));
    assert_eq!(["a", "new"].map(|file| fixture.read(file)), ["one\ntwo\nsecond\n", "mine\n"]);
    // What was applied and then committed is known to have come from the branch.
    fixture.write("new", "second\n");
    fixture.commit("applied");
    assert_eq!(fixture.apply(lease.task_id).await, (OrderOutcome::Applied, Vec::new()));
    assert_eq!(["a", "b", "new"].map(|file| fixture.read(file)), ["third\n", "b\n", "third\n"]);
    // What was committed with a change is merged as two histories.
    fixture.write("a", "mine\n");
    fixture.commit("changed");
    work(&|tree| write(&tree.join("a"), "fourth\n")).await;
    assert_eq!(fixture.apply(lease.task_id).await, (OrderOutcome::Conflicted, vec!["a".to_owned()]));
}

#[tokio::test]
async fn changes_that_git_does_not_look_for_are_never_overwritten() {
    for flag in ["--skip-worktree", "--assume-unchanged"] {
        let fixture = Fixture::new();
        fixture.git(&["update-index", flag, "a"]);
        fixture.write("a", "mine\n");
        let (task, _) = fixture.worktree(|tree| write(&tree.join("a"), "its\n")).await;
        assert_eq!(fixture.apply(task).await, (OrderOutcome::Conflicted, vec!["a".to_owned()]), "{flag}");
        assert_eq!(fixture.read("a"), "mine\n", "{flag}");
    }
}

#[tokio::test]
async fn a_change_in_the_second_of_the_commit_is_seen() {
    let fixture = Fixture::new();
    let (task, _) = fixture.worktree(|tree| write(&tree.join("b"), "i\n")).await;
    fixture.write("b", "c\n");
    fixture.commit("the same length");
    // In place, with the same length, and with the time that the index has: only the contents differ.
    let time = fs::metadata(fixture.top().join(".git/index")).unwrap().modified().unwrap();
    let mut file = fs::File::options().write(true).open(fixture.top().join("b")).unwrap();
    std::io::Write::write_all(&mut file, b"d\n").unwrap();
    file.set_modified(time).unwrap();
    drop(file);
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Conflicted);
    assert_eq!(fixture.read("b"), "d\n");
}

#[tokio::test]
async fn later_merges_know_what_was_committed_and_what_is_the_persons_own() {
    let fixture = Fixture::new();
    let lease = fixture.task(Isolation::Worktree);
    let work = async |work: &dyn Fn(&Path)| {
        let place = fixture.enter(&lease).await.unwrap();
        work(&path(&place));
        fixture.workplaces.changes(&place).await.unwrap();
        // An order waits until no attempt works there.
        drop(place);
        fixture.apply(lease.task_id).await
    };
    let applied = (OrderOutcome::Applied, Vec::new());
    // The person has the same new file already.
    fixture.write("own", "same\n");
    let first = |tree: &Path| {
        write(&tree.join("a"), "1\n");
        write(&tree.join("own"), "same\n");
    };
    assert_eq!(work(&first).await, applied);
    fixture.git(&["commit", "--quiet", "-m", "applied", "--", "a"]);
    for text in ["2\n", "3\n", "4\n"] {
        assert_eq!(work(&|tree| write(&tree.join("a"), text)).await, applied, "{text}");
        assert_eq!(fixture.read("a"), text);
    }
    assert_eq!(work(&|tree| write(&tree.join("gone"), "g\n")).await, applied);
    // The person commits something else, and the agent takes back both files.
    fixture.write("b", "mine\n");
    fixture.git(&["commit", "--quiet", "-m", "other", "--", "b"]);
    let back = |tree: &Path| {
        fs::remove_file(tree.join("gone")).unwrap();
        fs::remove_file(tree.join("own")).unwrap();
    };
    assert_eq!(work(&back).await, applied);
    assert!(!fixture.top().join("gone").exists(), "a merge has written it");
    assert_eq!(fixture.read("own"), "same\n", "no merge has written it");
}
