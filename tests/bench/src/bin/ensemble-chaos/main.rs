//! `make chaos`: kills services and PostgreSQL under load, cuts and delays the links between them, and then checks that
//! every response was true.
//!
//! The seed determines all decisions of this program, but not the scheduling of the machine. A failure prints the seed,
//! and the folder of its history and the logs of the services.

#![expect(clippy::print_stdout, reason = "the program prints its findings")]

mod check;
mod clients;
mod drain;
mod faults;
mod history;
mod load;
mod process;
mod proxy;
mod scenario;
mod stack;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

struct Options {
    first_seed: u64,
    seeds: u64,
}

/// The number of seeds that fit into ten minutes on two cores.
const MOST_SEEDS: u64 = 10;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(violations) => {
            println!("{violations} violations");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("chaos could not run: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<usize> {
    // reqwest is built without a default TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = options()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let begun = Instant::now();
    let mut found = 0;
    for seed in options.first_seed..options.first_seed + options.seeds {
        let folder = tempfile::Builder::new().prefix("ensemble-chaos-").tempdir()?;
        let scenario = scenario::run_seed(seed, folder.path());
        // A scenario that breaks off is a violation of this seed. The other seeds still run.
        let violations =
            runtime.block_on(scenario).unwrap_or_else(|error| vec![format!("the scenario broke off: {error:#}")]);
        for violation in violations.iter().take(20) {
            println!("  {violation}");
        }
        if !violations.is_empty() {
            println!("seed {seed}: {} violations; history and logs: {}", violations.len(), folder.keep().display());
            println!("again: make chaos SEED={seed} SEEDS=1");
        }
        found += violations.len();
    }
    println!("{} seeds in {} s", options.seeds, begun.elapsed().as_secs());
    Ok(found)
}

/// `ensemble-chaos [--seed N] [--seeds N]`
fn options() -> Result<Options> {
    let mut options = Options { first_seed: 1, seeds: MOST_SEEDS };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().and_then(|n| n.parse().ok()).with_context(|| format!("{flag} wants a number"))?;
        match flag.as_str() {
            "--seed" => options.first_seed = value,
            "--seeds" => options.seeds = value,
            _ => bail!("unknown flag {flag}; there are --seed and --seeds"),
        }
    }
    if options.seeds > MOST_SEEDS {
        bail!("that would take more than 10 minutes: at most {MOST_SEEDS} seeds, please");
    }
    Ok(options)
}
