//! Rules and states of runs, tasks and attempts. No I/O, no clock of its own.

mod draft;
mod graph;
mod range;
mod retry;
mod run;
mod task;
mod template;
mod waiting;

pub(crate) use draft::{BadRun, RunDraft};
pub(crate) use graph::{BadGraph, TaskGraph};
pub use range::byte_range;
pub(crate) use retry::Retry;
pub(crate) use run::{Counts, RunEvent, run_transition};
pub(crate) use task::{Ending, TaskEvent, judge, machine_deleted, task_transition};
pub(crate) use template::Template;
pub(crate) use waiting::{Runner, Waits, waiting_for};
