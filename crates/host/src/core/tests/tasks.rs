//! A session that is a task of a run.

use super::*;
use crate::kept::TaskEnd;

impl Room {
    fn task(&mut self, prompt_id: &str) {
        self.core.task(prompt_id.into(), "do it".into());
        self.settle();
    }

    fn end_of(&self, prompt_id: &str) -> TaskEnd {
        match self.core.task_state(prompt_id) {
            Some(TaskState::Ended(end)) => end,
            other => panic!("{prompt_id} is {other:?}"),
        }
    }
}

#[test]
fn a_task_ends_with_the_turn_that_its_prompt_began() {
    let mut room = room();
    room.begin();
    room.task("t1");
    assert_eq!(room.lines.last().unwrap(), "prompt do it");
    room.line("turn");
    let begun = room.said.iter().find_map(|said| match &said.content {
        Content::Turn(turn) => Some(turn.clone()),
        _ => None,
    });
    let begun = begun.unwrap();
    assert_eq!(
        (begun.cause, begun.prompt_id.as_deref(), begun.text.as_deref()),
        (Cause::Task, Some("t1"), Some("do it"))
    );
    assert_eq!(room.core.task_state("t1"), Some(TaskState::Runs));
    room.line("ask hi");
    assert_eq!(room.core.task_state("t1"), Some(TaskState::Asks));
    let answer = room.answer("no");
    room.send(answer);
    assert_eq!(room.core.task_state("t1"), Some(TaskState::Runs));
    room.line("end");
    let end = room.end_of("t1");
    assert_eq!((end.stop, end.cost_usd, end.denials), (Some(StopReason::EndTurn), Some(0.5), 1));
    assert!(!room.types().contains("receipt receipt"), "no person has sent the prompt, so it has no receipt");
    // What people send afterwards is no part of it, and no prompt of another attempt is.
    room.prompt("more");
    room.line("turn");
    assert_eq!(room.end_of("t1").denials, 1);
    assert_eq!(room.core.task_state("t2"), None);
}

#[test]
fn the_same_prompt_of_a_task_is_done_once() {
    let mut room = room();
    room.begin();
    room.task("t1");
    room.task("t1");
    room.line("turn");
    room.line("end");
    room.task("t1");
    assert_eq!(room.lines.iter().filter(|line| line.starts_with("prompt")).count(), 1);
    // The report about it was lost, so another attempt comes. There is nothing left to do.
    room.task("t2");
    assert_eq!(room.end_of("t2").stop, Some(StopReason::EndTurn));
    assert_eq!(room.lines.iter().filter(|line| line.starts_with("prompt")).count(), 1);
}

#[test]
fn an_attempt_continues_where_the_last_one_was_interrupted() {
    let mut room = room();
    room.begin();
    room.task("t1");
    room.line("turn");
    // The host dies, and another one has what was kept.
    let mut next = room_by(room.owner, room.core.kept.clone());
    next.core.recover();
    next.settle();
    assert_eq!(next.end_of("t1").stop, Some(StopReason::Error));
    next.task("t2");
    assert_eq!(next.starts[0].resume.as_deref(), Some("conversation"));
    next.line("ready");
    assert!(next.lines.last().unwrap().starts_with("prompt You were interrupted"), "{:?}", next.lines);
    next.line("turn");
    next.line("end");
    assert!(next.end_of("t2").is_good());
}

#[test]
fn a_task_that_is_cancelled_is_interrupted_or_never_begun() {
    let mut room = room();
    room.begin();
    room.prompt("first");
    room.line("turn");
    room.task("t1");
    room.core.cancel_task("t1");
    room.settle();
    assert_eq!(room.end_of("t1"), TaskEnd::default());
    assert!(!room.lines.contains(&"interrupt".to_owned()), "another person's turn continues");
    room.line("end");
    room.task("t2");
    assert_eq!(room.lines.last().unwrap(), "prompt do it", "the first one had not begun");
    room.line("turn");
    room.core.cancel_task("t2");
    room.settle();
    assert_eq!(room.lines.last().unwrap(), "interrupt");
}

#[test]
fn a_task_whose_agent_does_not_run_ends() {
    let mut stopped = room();
    stopped.begin();
    stopped.send(Content::Control(Control::Stop));
    stopped.exit();
    stopped.task("t1");
    assert_eq!(stopped.end_of("t1"), TaskEnd::default());

    let mut missing = room();
    missing.task("t1");
    assert_eq!(missing.starts.len(), 1);
    missing.core.not_started("there is no such program");
    missing.settle();
    let end = missing.end_of("t1");
    assert_eq!((end.stop, end.error), (None, Some(ErrorCode::Crashed)));
    assert!(missing.core.kept.queue.is_empty());

    let mut crashing = room();
    crashing.task("t1");
    for _ in 0..MOST_CRASHES {
        crashing.exit();
    }
    assert_eq!(crashing.end_of("t1").stop, None);
}

#[test]
fn what_an_attempt_left_in_the_queue_is_not_done_with_the_next() {
    let mut room = room();
    room.begin();
    room.prompt("first");
    room.line("turn");
    room.task("t1");
    // The host is killed before the prompt was given, and another attempt comes.
    let mut next = room_by(room.owner, room.core.kept.clone());
    next.core.recover();
    next.task("t2");
    assert_eq!(next.core.kept.queue.iter().filter(|prompt| prompt.is_task).count(), 1);
    next.line("ready");
    next.line("turn");
    assert_eq!(next.core.task_state("t2"), Some(TaskState::Runs));
    assert_eq!(next.lines.iter().filter(|line| *line == "prompt do it").count(), 1);
}

#[test]
fn what_a_person_has_interrupted_no_server_has_done_again() {
    let mut room = room();
    room.begin();
    room.task("t1");
    room.line("turn");
    room.send(Content::Control(Control::Interrupt));
    room.line("end");
    assert!(room.end_of("t1").by_person);
    room.task("t2");
    assert!(room.end_of("t2").by_person);
    assert_eq!(room.lines.iter().filter(|line| line.starts_with("prompt")).count(), 1);
}
