//! The rules and states of runs, tasks and attempts. This module does no I/O and reads no clock.

mod base;
mod changes;
mod cost;
mod deleted_machine;
mod draft;
mod draft_checks;
mod follow_up;
mod graph;
mod quota;
mod range;
mod retry;
mod run;
mod runner_request;
mod sealed_checks;
mod task;
mod waiting;

pub(crate) use changes::{
    ChangesWish, ORDER_WAITS, TAKES_WITHIN, WishOutcome, lost_with_machine, settled, waits_for_machine, wish,
};
pub(crate) use cost::Spending;
pub(crate) use deleted_machine::{DeletedMachine, new_deletion};
pub(crate) use draft::{ATTEMPT_BYTES, InvalidRun, RunDraft, TaskDraft};
pub(crate) use ensemble_types::template::Template;
pub(crate) use follow_up::{Continuation, NoFollowUp};
pub(crate) use graph::{InvalidGraph, TaskGraph};
pub(crate) use quota::{has_waited_too_often, hold_until};
pub use range::byte_range;
pub(crate) use retry::Retry;
pub(crate) use run::{Counts, RunEvent, run_transition};
pub(crate) use runner_request::{ActiveRunner, LeaseCall, RunnerRequest};
pub(crate) use task::{AttemptEnd, MachineNeed, TaskEvent, attempt_outcome, machine_deleted, task_transition};
pub(crate) use waiting::{ASKS_A_PERSON, Obstacles, Runner, directory_is_busy, waiting_for};
