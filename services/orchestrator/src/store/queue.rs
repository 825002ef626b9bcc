//! Calls that wait for their transaction. While one is on its way to the disk, the next ones gather, and then go together:
//! many runners cost little more than one, and those of one run do not stand in line for its row one by one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ensemble_store_kit::{Db, StoreError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Terms;
use super::calls::{Heard, LeaseCall, Word, hear};
use crate::error::Error;

const OPERATION: &str = "hear runners";
/// Calls in one transaction.
const TOGETHER: usize = 64;

#[derive(Clone)]
pub(super) struct Queue {
    db: Db,
    terms: Terms,
    waiting: Arc<Mutex<Waiting>>,
    /// Outlives the requests, whose threads have small runtimes of their own.
    runtime: Handle,
}

#[derive(Default)]
struct Waiting {
    calls: VecDeque<Call>,
    /// Somebody is at it.
    busy: bool,
}

struct Call {
    call: LeaseCall,
    word: Word,
    answer: oneshot::Sender<Result<Heard, Error>>,
}

impl Queue {
    /// To be called on the runtime that lives as long as the process.
    pub(super) fn new(db: Db, terms: Terms) -> Self {
        Self { db, terms, waiting: Arc::default(), runtime: Handle::current() }
    }

    pub(super) async fn put(&self, call: LeaseCall, word: Word) -> Result<Heard, Error> {
        let (answer, told) = oneshot::channel();
        let start = {
            let mut waiting = self.waiting();
            waiting.calls.push_back(Call { call, word, answer });
            !std::mem::replace(&mut waiting.busy, true)
        };
        if start {
            self.runtime.spawn(self.clone().work());
        }
        let lost = |_| StoreError::Unavailable { operation: OPERATION, reason: "the service is stopping".to_owned() };
        told.await.map_err(lost)?
    }

    async fn work(self) {
        while let Some(calls) = self.next() {
            let told = self.hear(&calls).await;
            for (call, answer) in calls.into_iter().zip(told) {
                // Whoever asked may have gone.
                let _ = call.answer.send(answer);
            }
        }
    }

    /// Those that go together now. When there are none, nobody is at it any more.
    fn next(&self) -> Option<Vec<Call>> {
        let mut waiting = self.waiting();
        let count = waiting.calls.len().min(TOGETHER);
        waiting.busy = count > 0;
        (count > 0).then(|| waiting.calls.drain(..count).collect())
    }

    async fn hear(&self, calls: &[Call]) -> Vec<Result<Heard, Error>> {
        let words: Vec<(LeaseCall, Word)> = calls.iter().map(|call| (call.call.clone(), call.word.clone())).collect();
        match self.write(words.clone()).await {
            Ok(answers) => answers,
            Err(StoreError::Unavailable { operation, reason }) => {
                let away = || Err(StoreError::Unavailable { operation, reason: reason.clone() }.into());
                words.iter().map(|_| away()).collect()
            }
            // One that cannot be written must not take the others with it.
            Err(error) if words.len() > 1 => {
                tracing::debug!(%error, "Hearing runners one by one");
                let mut answers = Vec::with_capacity(words.len());
                for word in words {
                    answers.push(self.write(vec![word]).await.map_err(Error::from).and_then(only));
                }
                answers
            }
            Err(error) => vec![Err(error.into())],
        }
    }

    async fn write(&self, words: Vec<(LeaseCall, Word)>) -> Result<Vec<Result<Heard, Error>>, StoreError> {
        let terms = self.terms;
        self.db.write(OPERATION, move |tx| hear(tx, &words, &terms)).await
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn only(mut answers: Vec<Result<Heard, Error>>) -> Result<Heard, Error> {
    answers.pop().unwrap_or(Err(Error::NotFound))
}
