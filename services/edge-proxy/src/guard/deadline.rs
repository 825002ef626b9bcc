//! One timer for all deadlines of a connection.
//!
//! Deadlines move with every request, timers are dear: so the timer is left alone while it fires early enough, and when
//! it fires the deadlines are looked at again.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Makes sure that the task is woken at `deadline` or before. False when that time is over.
    pub(super) fn wake_by(&mut self, cx: &mut Context<'_>, deadline: Instant) -> bool {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep.as_mut().reset(deadline);
        }
        true
    }

    /// Whether the task will be woken at some time anyway.
    pub(super) fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|sleep| !sleep.is_elapsed())
    }
}
