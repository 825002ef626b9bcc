//! A task that becomes ready costs about the look of one waiting request, however many wait, and reaches one of them.

use ensemble_testkit::{Backend, SOON, eventually, on_both_databases, run, sql, statements};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_postgres::NoTls;

use crate::fixture::{Fixture, NO_SWEEP, Runner, task};

/// Tasks that become ready one after the other.
const TASKS: u64 = 20;
const WAITING: usize = 8;
/// What a task may cost because more than one request waits: the look of another one, which finds that no task is left.
const OF_OTHERS: u64 = 8;

/// The statements of tasks that become ready one after the other, while a request of each of these runners waits.
async fn cost(fixture: &Fixture, runners: &[Runner]) -> u64 {
    let (done, mut ends) = mpsc::unbounded_channel();
    let work = |runner: Runner| {
        let done = done.clone();
        tokio::spawn(async move {
            loop {
                for lease in runner.wait(1, SOON).await {
                    runner.complete(&lease).await;
                    done.send(()).expect("the test waits for it");
                }
            }
        })
    };
    let waiting: Vec<_> = runners.iter().cloned().map(work).collect();
    fixture.wait_for_requests(runners.len()).await;
    let before = statements(&fixture.url);
    for _ in 0..TASKS {
        fixture.submit(json!([task("x")])).await;
        ends.recv().await.expect("a runner completes it");
        fixture.wait_for_requests(runners.len()).await;
    }
    let spent = statements(&fixture.url) - before;
    waiting.iter().for_each(|work| work.abort());
    fixture.wait_for_requests(0).await;
    spent
}

on_both_databases! {
    async fn a_task_costs_the_look_of_one_waiting_request(on: Backend) {
        let fixture = Fixture::with(on, &NO_SWEEP).await;
        let machines: Vec<Runner> = (0..WAITING).map(|_| fixture.runner()).collect();
        let alone = cost(&fixture, &machines[..1]).await;
        let of_one_machine = cost(&fixture, &vec![machines[0].clone(); WAITING]).await;
        let of_an_account = cost(&fixture, &machines).await;
        println!("alone {alone}, of one machine {of_one_machine}, of an account {of_an_account}");
        let most = alone + TASKS * OF_OTHERS;
        assert!(of_one_machine <= most && of_an_account <= most, "{of_one_machine} and {of_an_account}, {alone} alone");
    }

    async fn each_of_several_tasks_reaches_a_waiting_request(on: Backend) {
        let fixture = Fixture::with(on, &NO_SWEEP).await;
        let runner = fixture.runner();
        // It cannot be leased, so the account always has a task that is ready.
        let elsewhere = fixture.runner();
        fixture.submit(json!([{ "prompt": "x", "provider": "claude", "machineId": elsewhere.id }])).await;
        let waiting: Vec<_> = (0..WAITING).map(|_| {
            let runner = runner.clone();
            tokio::spawn(async move { runner.lease_one().await })
        }).collect();
        fixture.wait_for_requests(WAITING).await;
        for _ in 0..WAITING / 2 {
            fixture.submit(json!([task("x"), task("y")])).await;
        }
        for lease in waiting {
            runner.complete(&lease.await.unwrap()).await;
        }
    }
}

/// Grants that wait for the row of a run.
const GRANTING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'";

/// As when another replica is faster. Not on SQLite, which has one process.
#[test]
fn a_request_whose_task_another_got_takes_the_next_one() {
    run(async {
        let fixture = Fixture::with(Backend::Postgres, &NO_SWEEP).await;
        let (runner, other) = (fixture.runner(), fixture.runner());
        let first = fixture.submit(json!([task("x")])).await;
        let second = fixture.submit(json!([task("y")])).await;
        let (mut client, connection) = tokio_postgres::connect(&fixture.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let holder = client.transaction().await.unwrap();
        let of_first = format!("id = '{}'", first["id"].as_str().unwrap());
        holder.batch_execute(&format!("SELECT 1 FROM runs WHERE {of_first} FOR UPDATE")).await.unwrap();
        let waiting = tokio::spawn(async move { runner.lease_one().await });
        eventually(SOON, async || sql::number(&fixture.url, GRANTING).await == 1).await;
        let moved = format!("UPDATE runs SET machine_id = '{}' WHERE {of_first}", other.id);
        holder.batch_execute(&moved).await.unwrap();
        holder.commit().await.unwrap();
        assert_eq!(waiting.await.unwrap()["runId"], second["id"]);
        assert_eq!(other.lease_one().await["runId"], first["id"]);
    });
}

/// Looks for work that wait for a lock.
const LOOKING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock' AND query LIKE '%task_refusals%'";

/// Not on SQLite, where nothing can be locked.
#[test]
fn a_task_reaches_another_request_when_the_one_that_looks_goes_away() {
    run(async {
        let fixture = Fixture::with(Backend::Postgres, &NO_SWEEP).await;
        let runner = fixture.runner();
        let (mut client, connection) = tokio_postgres::connect(&fixture.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        // One of them looks, the others wait for it. Which one it is differs from round to round.
        for _ in 0..4 {
            let looks = fixture.metric("ensemble_lease_grant_seconds_count").await;
            let mut waiting: Vec<_> = (0..WAITING)
                .map(|_| {
                    let runner = runner.clone();
                    tokio::spawn(async move { runner.lease_one().await })
                })
                .collect();
            let have_looked = async || fixture.metric("ensemble_lease_grant_seconds_count").await >= looks + 8.0;
            eventually(SOON, have_looked).await;
            let holder = client.transaction().await.unwrap();
            holder.batch_execute("LOCK TABLE task_refusals IN ACCESS EXCLUSIVE MODE").await.unwrap();
            fixture.submit(json!([task("x")])).await;
            eventually(SOON, async || sql::number(&fixture.url, LOOKING).await == 1).await;
            let left = waiting.pop().unwrap();
            waiting.iter().for_each(|gone| gone.abort());
            fixture.wait_for_requests(1).await;
            holder.rollback().await.unwrap();
            runner.complete(&left.await.unwrap()).await;
        }
    });
}
