//! Deliveries that end together keep no caller from the connection that writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ensemble_store_kit::deliveries::{Deliveries, Due, send_all};
use ensemble_store_kit::{Db, StoreError, Topic};
use ensemble_testkit::{Backend, eventually, on_both_databases, run};
use futures_util::future::join_all;
use tokio::sync::{Barrier, oneshot};

use crate::batcher::open;

const AT_ONCE: usize = 8;
const ALL: usize = 20 * AT_ONCE;
const SOON: Duration = Duration::from_secs(120);

/// Each waits until as many as are sent at once have come so far, so that they end together.
struct Together {
    db: Db,
    left: usize,
    answer: Arc<Barrier>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    recorded: AtomicUsize,
    refused: AtomicUsize,
    noted: AtomicUsize,
}

impl Counts {
    fn note<T>(&self, result: &Result<T, StoreError>) {
        let count = if result.is_ok() { &self.recorded } else { &self.refused };
        count.fetch_add(1, Ordering::SeqCst);
    }

    fn all(&self) -> [usize; 3] {
        [&self.recorded, &self.refused, &self.noted].map(|count| count.load(Ordering::SeqCst))
    }
}

async fn write(db: &Db) -> Result<(), StoreError> {
    db.write("write", |tx| tx.batch("SELECT 1")).await
}

impl Deliveries for Together {
    type Delivery = ();
    type Tried = ();

    fn most(&self) -> usize {
        AT_ONCE
    }

    async fn take(&mut self, free: usize) -> Result<Due<()>, StoreError> {
        let written = write(&self.db).await;
        if written.is_err() {
            self.counts.note(&written);
        }
        written?;
        let taken = self.left.min(free);
        self.left -= taken;
        Ok(Due { taken: vec![(); taken], next: None })
    }

    fn send(&self, (): ()) -> impl Future<Output = ()> + Send + 'static {
        let (db, answer, counts) = (self.db.clone(), Arc::clone(&self.answer), Arc::clone(&self.counts));
        async move {
            answer.wait().await;
            counts.note(&write(&db).await);
        }
    }

    fn note(&mut self, (): ()) {
        self.counts.noted.fetch_add(1, Ordering::SeqCst);
    }
}

fn together(db: &Db, all: usize) -> (Together, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let answer = Arc::new(Barrier::new(AT_ONCE));
    (Together { db: db.clone(), left: all, answer, counts: Arc::clone(&counts) }, counts)
}

on_both_databases! {
    async fn many_that_end_together_refuse_no_waiter(on: Backend) {
        let (db, _database) = open(on).await;
        let (sent, counts) = together(&db, ALL);
        let added = db.notifier().subscribe(Topic::new("test", "due"));
        let (end, ended) = oneshot::channel::<()>();
        let sending = tokio::spawn(send_all(sent, added, async { drop(ended.await) }));
        while counts.noted.load(Ordering::SeqCst) + counts.refused.load(Ordering::SeqCst) < ALL {
            // Others write meanwhile.
            for written in join_all((0..4).map(|_| write(&db))).await {
                written.unwrap();
            }
        }
        drop(end);
        sending.await.unwrap();
        assert_eq!(counts.all(), [ALL, 0, ALL]);
    }
}

#[test]
fn those_that_are_being_sent_at_the_end_are_recorded() {
    run(async {
        let (db, _database) = open(Backend::Sqlite).await;
        // One less than the barrier lets through.
        let (sent, counts) = together(&db, AT_ONCE - 1);
        let answer = Arc::clone(&sent.answer);
        let added = db.notifier().subscribe(Topic::new("test", "due"));
        let (end, ended) = oneshot::channel::<()>();
        let sending = tokio::spawn(send_all(sent, added, async { drop(ended.await) }));
        // It is owned here, by the sender, and by each task.
        eventually(SOON, async || Arc::strong_count(&answer) == AT_ONCE + 1).await;
        drop(end);
        answer.wait().await;
        sending.await.unwrap();
        assert_eq!(counts.all(), [AT_ONCE - 1, 0, 0]);
    });
}
