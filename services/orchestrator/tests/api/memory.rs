//! Outputs and large runs do not stay in the memory of the service. `make bench ROWS=large-runs-memory` measures the release
//! service with ten times as much.

use std::time::Duration;

use ensemble_testkit::{Api, Backend, Program, on_both_databases, run};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::NoTls;

use crate::fixture::{Fixture, RUNS, Runner, number, path, variables};

const MIB: f64 = 1048576.0;

/// The service as a process of its own, so that its memory can be measured.
struct Process {
    fixture: Fixture,
    program: Program,
    api: Api,
    internal: Api,
}

impl Process {
    async fn start(on: Backend, more: &[(&str, &str)]) -> Self {
        let mut fixture = Fixture::new(on).await;
        fixture.stop().await;
        // Each arena of glibc keeps what its threads had at once, which is not what the service holds.
        let vars = [("RUST_LOG", "warn"), ("MALLOC_ARENA_MAX", "1")];
        let more: Vec<_> = more.iter().copied().chain(vars).collect();
        let vars = variables(&fixture.peers, &fixture.url, &more);
        let program = Program::start(env!("CARGO_BIN_EXE_ensemble-orchestrator"), vars).await;
        let api = fixture.api.at(&program.public_url);
        let internal = Api::new(&program.internal_url);
        Self { fixture, program, api, internal }
    }

    fn runner(&self) -> Runner {
        let runner = self.fixture.runner();
        Runner { id: runner.id, api: runner.api.at(&self.program.public_url) }
    }

    /// The resident memory, in MiB.
    async fn memory(&self) -> f64 {
        let response = self.internal.get("/metrics").await.text;
        let line = response.lines().find(|line| line.starts_with("ensemble_process_resident_memory_bytes")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() / MIB
    }

    /// The largest memory while `what` runs.
    async fn most_while<T>(&self, what: impl Future<Output = T>) -> (T, f64) {
        let mut what = std::pin::pin!(what);
        let mut most = 0_f64;
        loop {
            most = most.max(self.memory().await);
            if let Ok(done) = tokio::time::timeout(Duration::from_millis(20), &mut what).await {
                return (done, most.max(self.memory().await));
            }
        }
    }
}

on_both_databases! {
    async fn twenty_mebibytes_of_output_need_constant_memory(on: Backend) {
        const PIECE: usize = 512 * 1024;
        const STORED: usize = 1 << 20;
        let process = Process::start(on, &[("ORCHESTRATOR_OUTPUT_CAP_BYTES", "1048576")]).await;
        let submitted = process.api.post(RUNS, &json!({ "tasks": [crate::fixture::task("a")] })).await.expect(201);
        let runner = process.runner();
        let lease = runner.lease_one().await;
        let piece = "0123456789abcde\n".repeat(PIECE / 16);
        let send = async |from: usize, to: usize| {
            for at in from..to {
                runner.output(&lease, at * PIECE, &piece).await.expect(200);
            }
        };
        // All that is stored, and some output beyond the limit.
        send(0, 8).await;
        let before = process.memory().await;
        let ((), most) = process.most_while(send(8, 48)).await;
        println!("memory grew from {before:.1} MiB to {most:.1} MiB over 20 MiB of output");
        assert!(most - before < 8.0, "memory grew from {before} MiB to {most} MiB");
        runner.complete(&lease).await;
        let output = format!("/tasks/{}/output", submitted["tasks"][0]["id"].as_str().unwrap());
        let kept = process.api.get(&path(&submitted, &output)).await.text;
        assert!(kept.len() >= STORED && kept.ends_with("\n[output truncated after 1048576 bytes]\n"));
        let stored = number(&process.fixture, "SELECT sum(length(data)) FROM output_chunks").await;
        assert_eq!(usize::try_from(stored).unwrap(), kept.len(), "nothing else is stored");
    }
}

/// Reads a response to its end and returns its length.
async fn skim(api: Api, path: String) -> usize {
    // On a busy machine a test's usual time is too short for hundreds of megabytes.
    let mut answer = api.request("GET", &path).timeout(Duration::from_mins(10)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut length = 0;
    while let Some(chunk) = answer.chunk().await.unwrap() {
        length += chunk.len();
    }
    length
}

#[test]
fn large_runs_are_read_in_constant_memory() {
    run(async {
        let process = Process::start(Backend::Postgres, &[]).await;
        let tasks: Vec<Value> = vec![crate::fixture::task("x"); 1_000];
        let submitted = process.api.post(RUNS, &json!({ "tasks": tasks })).await.expect(201);
        // Set in the database, because this many reports would take long.
        let (client, connection) = tokio_postgres::connect(&process.fixture.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
            .batch_execute(
                "UPDATE task_specs SET prompt = repeat('p', 65536) WHERE task_id IN (SELECT id FROM tasks \
                 WHERE position % 10 = 0); UPDATE tasks SET output_summary = repeat('s', 16384)",
            )
            .await
            .unwrap();
        let before = process.memory().await;
        let readers = (0..2).map(|_| skim(process.api.clone(), path(&submitted, "")));
        let (lengths, most) = process.most_while(futures_util::future::join_all(readers)).await;
        println!("memory grew from {before:.1} MiB to {most:.1} MiB while {lengths:?} bytes were read");
        assert!(lengths.iter().all(|length| *length > 100 * 65_536 + 1_000 * 16_384), "{lengths:?}");
        // Half of what the two have read.
        assert!(most - before < 24.0, "memory grew from {before} MiB to {most} MiB");
    });
}

/// Asks for the same resource on many connections and reads no more than the beginning of each answer.
async fn unread(process: &Process, path: &str, readers: usize) -> Vec<TcpStream> {
    let url = &process.program.public_url;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        process.fixture.peers.issuer().user(process.fixture.user)
    );
    let mut open = Vec::new();
    while open.len() < readers {
        let mut connection = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        connection.read_exact(&mut begin).await.unwrap();
        match &begin {
            b"HTTP/1.1 200" => open.push(connection),
            // On a busy machine it is not the caller's turn in time.
            b"HTTP/1.1 503" => {}
            other => panic!("{path}: {}", String::from_utf8_lossy(other)),
        }
    }
    open
}

#[test]
fn unread_answers_cost_little() {
    const READERS: usize = 50;
    run(async {
        let process = Process::start(Backend::Postgres, &[]).await;
        let long = json!({ "prompt": "p".repeat(65_536), "provider": "claude" });
        let submitted = process.api.post(RUNS, &json!({ "tasks": vec![long; 100] })).await.expect(201);
        let runner = process.runner();
        let lease = runner.lease_one().await;
        let piece = "0123456789abcde\n".repeat(65_536);
        for at in 0..8 {
            runner.output(&lease, at * piece.len(), &piece).await.expect(200);
        }
        let output = path(&submitted, &format!("/tasks/{}/output", lease["taskId"].as_str().unwrap()));
        for path in [output.clone(), format!("{output}?follow=true"), path(&submitted, "")] {
            // The first reader is not counted: it fills what the service keeps.
            let first = unread(&process, &path, 1).await;
            let before = process.memory().await;
            let (open, most) = process.most_while(unread(&process, &path, READERS)).await;
            println!("{path}: {READERS} readers took {:.1} MiB", most - before);
            assert!(most - before < 48.0, "{path}: from {before:.1} MiB to {most:.1} MiB");
            drop((first, open));
        }
    });
}
