//! What is applied and discarded is what its owner was shown.

use ensemble_protocol::seal::{TaskAction, TaskOrder};
use ensemble_types::changes::ChangedFile;
use ensemble_types::runs::{Signed, SignedBody, TaskSignature};
use ensemble_types::signatures::digest;
use ensemble_types::text::Blob;

use super::*;

const BODY: &str = r#"{"signed":"as a task"}"#;

/// A task that was signed and has changed two files, and what it changed.
async fn signed_task(fixture: &Fixture) -> (Lease, Changed) {
    let signature = TaskSignature { key: Blob::new("k").unwrap(), sig: Blob::new("s").unwrap() };
    let signed = Some(Signed { signature, signed_body: SignedBody::new(BODY).unwrap() });
    let lease = Lease { signed, ..fixture.task(Isolation::Worktree) };
    let changed = attempt(fixture, &lease, "TWO").await;
    (lease, changed)
}

/// An attempt that changes `a` and adds a file.
async fn attempt(fixture: &Fixture, lease: &Lease, word: &str) -> Changed {
    let place = fixture.enter(lease).await.unwrap();
    fixture.workplaces.forget_shown(&place).unwrap();
    write(&path(&place).join("a"), &format!("one\n{word}\nthree\n"));
    write(&path(&place).join("new"), "new\n");
    fixture.workplaces.changes(&place).await.unwrap()
}

fn wanted(lease: &Lease, action: TaskAction, seen: &str) -> TaskOrder {
    TaskOrder {
        action,
        task_id: lease.task_id,
        task_digest: digest(BODY),
        text: None,
        seen: Some(seen.to_owned()),
        unseen: false,
        machine_id: None,
        nonce: "n".to_owned(),
        at: Timestamp::from_unix_seconds(0),
        expires: Timestamp::from_unix_seconds(1),
    }
}

async fn carry_out(fixture: &Fixture, wanted: &TaskOrder) -> (OrderOutcome, String) {
    let kind = if wanted.action == TaskAction::Apply { OrderKind::Apply } else { OrderKind::Discard };
    let result = fixture.workplaces.carry_out(kind, wanted.task_id, Some(wanted)).await;
    (result.outcome, result.reason.map(|reason| reason.to_string()).unwrap_or_default())
}

/// The digest of the list without its last file, with the counts that fit.
fn without_last(changed: &Changed) -> String {
    let mut report = changed.report.clone();
    let file: ChangedFile = report.files.pop().unwrap();
    report.file_count -= 1;
    report.added -= file.added.unwrap_or(0);
    report.list_digest()
}

#[tokio::test]
async fn what_was_shown_is_applied_and_nothing_else() {
    let fixture = Fixture::new();
    let (lease, changed) = signed_task(&fixture).await;
    let whole = diff(&changed);
    let one_file_less = whole.split("diff --git a/new").next().unwrap().to_owned();
    assert!(one_file_less.len() < whole.len() && changed.has_whole_diff && changed.has_whole_list);
    for action in [TaskAction::Apply, TaskAction::Discard] {
        for seen in [digest(&one_file_less), without_last(&changed), digest(""), String::new()] {
            let (outcome, why) = carry_out(&fixture, &wanted(&lease, action, &seen)).await;
            assert_eq!(outcome, OrderOutcome::Conflicted, "{action:?} {seen}");
            assert!(why.contains("has changed since you looked"), "{why}");
        }
    }
    assert_eq!((fixture.read("a"), fixture.top().join("new").exists()), ("one\ntwo\nthree\n".to_owned(), false));
    let (outcome, _) = carry_out(&fixture, &wanted(&lease, TaskAction::Apply, &digest(&whole))).await;
    assert_eq!((outcome, fixture.read("a")), (OrderOutcome::Applied, "one\nTWO\nthree\n".to_owned()));
    let seen = changed.report.list_digest();
    let (outcome, _) = carry_out(&fixture, &wanted(&lease, TaskAction::Discard, &seen)).await;
    assert_eq!(outcome, OrderOutcome::Discarded);
}

#[tokio::test]
async fn what_a_later_attempt_changed_was_not_seen() {
    let fixture = Fixture::new();
    let (lease, first) = signed_task(&fixture).await;
    let again = Lease { id: LeaseId::generate(), ..lease.clone() };
    let second = attempt(&fixture, &again, "2").await;
    let outcome = async |seen: &str| carry_out(&fixture, &wanted(&lease, TaskAction::Apply, seen)).await.0;
    assert_eq!(outcome(&digest(diff(&first))).await, OrderOutcome::Conflicted, "an order from before");
    assert_eq!(outcome(&digest(diff(&second))).await, OrderOutcome::Applied);

    // One that did not end has shown nothing.
    let place = fixture.enter(&lease).await.unwrap();
    fixture.workplaces.forget_shown(&place).unwrap();
    write(&path(&place).join("b"), "B\n");
    drop(place);
    let seen = digest(diff(&second));
    let (outcome, _) = carry_out(&fixture, &wanted(&lease, TaskAction::Apply, &seen)).await;
    assert_eq!(outcome, OrderOutcome::Conflicted);
    let (outcome, _) = carry_out(&fixture, &wanted(&lease, TaskAction::Discard, &seen)).await;
    assert_eq!(outcome, OrderOutcome::Conflicted);
    let unseen = |action| TaskOrder { unseen: true, ..wanted(&lease, action, &seen) };
    assert_eq!(carry_out(&fixture, &unseen(TaskAction::Apply)).await.0, OrderOutcome::Applied);
    assert_eq!(carry_out(&fixture, &unseen(TaskAction::Discard)).await.0, OrderOutcome::Discarded);
}

#[tokio::test]
async fn what_could_not_be_shown_whole_is_applied_only_unseen() {
    let fixture = Fixture::new();
    let (lease, _) = signed_task(&fixture).await;
    let place = fixture.enter(&lease).await.unwrap();
    write(&path(&place).join("long"), &"a line of the long file\n".repeat(40_000));
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    drop(place);
    assert!(
        changed.report.partial
            && !changed.has_whole_diff
            && diff(&changed).contains("the diff of this file is too long")
    );
    for seen in [digest(diff(&changed)), changed.report.list_digest()] {
        let order = wanted(&lease, TaskAction::Apply, &seen);
        let (outcome, why) = carry_out(&fixture, &order).await;
        assert!(outcome == OrderOutcome::Conflicted && why.contains("--unseen"), "{outcome:?} {why}");
    }
    // Also when its owner was shown something else: a report that was lost, for example.
    let unseen = TaskOrder { unseen: true, ..wanted(&lease, TaskAction::Apply, &digest("something else")) };
    assert_eq!(carry_out(&fixture, &unseen).await.0, OrderOutcome::Applied);
    assert!(fixture.top().join("long").exists());
}

#[tokio::test]
async fn an_order_for_another_task_with_this_id_is_refused() {
    let fixture = Fixture::new();
    let (lease, changed) = signed_task(&fixture).await;
    for action in [TaskAction::Apply, TaskAction::Discard] {
        let order = wanted(&lease, action, &digest(diff(&changed)));
        let other = TaskOrder { task_digest: digest("another"), ..order };
        let (outcome, why) = carry_out(&fixture, &other).await;
        assert!(outcome == OrderOutcome::Failed && why.contains("another task"), "{outcome:?} {why}");
    }
    assert_eq!(fixture.read("a"), "one\ntwo\nthree\n");
    // Nor is one that was signed carried out for a task that was not.
    let (plain, changed) = fixture.worktree(|tree| write(&tree.join("a"), "x\n")).await;
    let order = TaskOrder { task_id: plain, ..wanted(&lease, TaskAction::Apply, &digest(diff(&changed))) };
    assert_eq!(carry_out(&fixture, &order).await.0, OrderOutcome::Failed);
}

#[tokio::test]
async fn a_whole_diff_of_many_files_needs_nothing_unseen() {
    let fixture = Fixture::new();
    let (lease, _) = signed_task(&fixture).await;
    let place = fixture.enter(&lease).await.unwrap();
    for number in 0..300 {
        write(&path(&place).join(format!("many{number}")), "x\n");
    }
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    drop(place);
    assert!(changed.has_whole_diff && !changed.has_whole_list && !changed.report.partial);
    let list = wanted(&lease, TaskAction::Apply, &changed.report.list_digest());
    let (outcome, why) = carry_out(&fixture, &list).await;
    assert!(outcome == OrderOutcome::Conflicted && why.contains("--unseen"), "{outcome:?} {why}");
    let whole = wanted(&lease, TaskAction::Apply, &digest(diff(&changed)));
    assert_eq!(carry_out(&fixture, &whole).await.0, OrderOutcome::Applied);
    assert!(fixture.top().join("many299").exists());
}

#[tokio::test]
async fn what_was_put_on_the_branch_since_was_not_seen() {
    let fixture = Fixture::new();
    let (lease, changed) = signed_task(&fixture).await;
    let place = fixture.enter(&lease).await.unwrap();
    write(&path(&place).join("later"), "later\n");
    git_in(&path(&place), &["add", "--all"]);
    git_in(&path(&place), &["commit", "--quiet", "-m", "later"]);
    fixture.workplaces.show_again(&place);
    drop(place);
    let seen = digest(diff(&changed));
    let (outcome, why) = carry_out(&fixture, &wanted(&lease, TaskAction::Apply, &seen)).await;
    assert!(outcome == OrderOutcome::Conflicted && why.contains("changed since you looked"), "{outcome:?} {why}");
    assert!(!fixture.top().join("later").exists());
    let unseen = TaskOrder { unseen: true, ..wanted(&lease, TaskAction::Apply, &seen) };
    assert_eq!(carry_out(&fixture, &unseen).await.0, OrderOutcome::Applied);
    assert!(fixture.top().join("later").exists());
}

#[tokio::test]
async fn an_agent_that_could_not_begin_changes_nothing_of_what_was_shown() {
    let fixture = Fixture::new();
    let (lease, changed) = signed_task(&fixture).await;
    let place = fixture.enter(&lease).await.unwrap();
    fixture.workplaces.forget_shown(&place).unwrap();
    fixture.workplaces.show_again(&place);
    drop(place);
    let order = wanted(&lease, TaskAction::Apply, &digest(diff(&changed)));
    assert_eq!(carry_out(&fixture, &order).await.0, OrderOutcome::Applied);
    let place = fixture.enter(&lease).await.unwrap();
    fixture.workplaces.forget_shown(&place).unwrap();
    drop(place);
    let (outcome, why) = carry_out(&fixture, &order).await;
    assert!(
        outcome == OrderOutcome::Conflicted && why.contains("--unseen"),
        "it was killed at work: {outcome:?} {why}"
    );
}

#[tokio::test]
async fn what_a_runner_that_was_killed_has_left_is_discarded_or_applied_unseen() {
    let fixture = Fixture::new();
    assert_eq!(fixture.workplaces.left(TaskId::generate()).unwrap(), None, "there is no worktree");
    let (lease, before) = signed_task(&fixture).await;
    let place = fixture.enter(&lease).await.unwrap();
    fixture.workplaces.forget_shown(&place).unwrap();
    write(&path(&place).join("later"), "later\n");
    drop(place);
    let left = fixture.workplaces.left(lease.task_id).unwrap().unwrap();
    assert!(left.kept && left.unknown && left.notes[0].contains("the runner was stopped"), "{left:?}");
    for seen in [digest(diff(&before)), left.list_digest()] {
        let (outcome, why) = carry_out(&fixture, &wanted(&lease, TaskAction::Apply, &seen)).await;
        assert!(outcome == OrderOutcome::Conflicted && why.contains("--unseen"), "{outcome:?} {why}");
    }
    let unseen = TaskOrder { unseen: true, ..wanted(&lease, TaskAction::Apply, &left.list_digest()) };
    assert_eq!(carry_out(&fixture, &unseen).await.0, OrderOutcome::Applied);
    assert!(fixture.top().join("later").exists());
    let discard = wanted(&lease, TaskAction::Discard, &left.list_digest());
    assert_eq!(carry_out(&fixture, &discard).await.0, OrderOutcome::Discarded);
}
