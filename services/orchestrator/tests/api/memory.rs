//! What passes through the service does not stay in its memory.

use std::time::Duration;

use ensemble_testkit::{Api, Backend, Program, on_both_databases, run};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::world::{RUNS, Runner, World, path, variables};

const MIB: f64 = 1048576.0;

/// The service as a process of its own, whose memory can be seen.
struct Process {
    world: World,
    program: Program,
    api: Api,
}

impl Process {
    async fn start(on: Backend) -> Self {
        let mut world = World::new(on).await;
        world.stop().await;
        let vars = variables(&world.peers, &world.url, &[("RUST_LOG", "warn")]);
        let program = Program::start(env!("CARGO_BIN_EXE_ensemble-orchestrator"), vars).await;
        let api = world.api.at(&program.public_url);
        Self { world, program, api }
    }

    fn runner(&self) -> Runner {
        let runner = self.world.runner();
        Runner { id: runner.id, api: runner.api.at(&self.program.public_url) }
    }

    /// Resident, in MiB.
    async fn memory(&self) -> f64 {
        let told = Api::new(&self.program.internal_url).get("/metrics").await.text;
        let line = told.lines().find(|line| line.starts_with("ensemble_process_resident_memory_bytes")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() / MIB
    }

    /// The most that is seen while something happens.
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
    async fn a_hundred_mebibytes_of_output_pass_through_flat_memory(on: Backend) {
        const PIECE: usize = 512 * 1024;
        let process = Process::start(on).await;
        let submitted = process.api.post(RUNS, &json!({ "tasks": [crate::world::task("a")] })).await.expect(201);
        let runner = process.runner();
        let lease = runner.one().await;
        let piece = "0123456789abcde\n".repeat(PIECE / 16);
        let send = async |from: usize, to: usize| {
            for at in from..to {
                runner.output(&lease, at * PIECE, &piece).await.expect(200);
            }
        };
        // What is kept, and a little of what is only counted.
        send(0, 20).await;
        let before = process.memory().await;
        let ((), most) = process.most_while(send(20, 200)).await;
        println!("memory grew from {before:.1} MiB to {most:.1} MiB over 90 MiB of output");
        assert!(most - before < 24.0, "memory grew from {before} MiB to {most} MiB");
        runner.complete(&lease).await;
        let output = format!("/tasks/{}/output", submitted["tasks"][0]["id"].as_str().unwrap());
        let kept = process.api.get(&path(&submitted, &output)).await.text;
        assert!(kept.len() >= 8 << 20 && kept.ends_with("\n[output truncated after 8388608 bytes]\n"));
    }
}

/// Reads an answer to its end without keeping it; gives its length.
async fn skim(api: Api, path: String) -> usize {
    let mut answer = api.request("GET", &path).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut length = 0;
    while let Some(chunk) = answer.chunk().await.unwrap() {
        length += chunk.len();
    }
    length
}

#[test]
fn the_largest_runs_are_read_through_flat_memory() {
    run(async {
        let process = Process::start(Backend::Postgres).await;
        let tasks: Vec<Value> = vec![crate::world::task("x"); 10_000];
        let submitted = process.api.post(RUNS, &json!({ "tasks": tasks })).await.expect(201);
        // Longer texts than any that could be handed in at once; to report 10,000 summaries would take minutes.
        let (client, connection) = tokio_postgres::connect(&process.world.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
            .batch_execute(
                "UPDATE task_specs SET prompt = repeat('p', 65536) WHERE task_id IN (SELECT id FROM tasks \
                 WHERE position < 1000); UPDATE tasks SET output_summary = repeat('s', 16384)",
            )
            .await
            .unwrap();
        let before = process.memory().await;
        let readers = (0..2).map(|_| skim(process.api.clone(), path(&submitted, "")));
        let (lengths, most) = process.most_while(futures_util::future::join_all(readers)).await;
        println!("memory grew from {before:.1} MiB to {most:.1} MiB while {lengths:?} bytes were read");
        assert!(lengths.iter().all(|length| *length > 1000 * 65_536 + 10_000 * 16_384), "{lengths:?}");
        assert!(most - before < 160.0, "memory grew from {before} MiB to {most} MiB");
    });
}
