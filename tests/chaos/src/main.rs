//! `make chaos`: kills services and PostgreSQL under load, cuts and delays the links between them, and then checks that
//! everything that was answered is true.
//!
//! One seed decides everything that this program decides; what the machine decides (who is scheduled when) it cannot.
//! A failure prints the seed to try again with, and where its history and the logs of the services are.

mod acts;
mod check;
mod drain;
mod history;
mod load;
mod people;
mod proxy;
mod stage;
mod story;
mod town;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

struct Options {
    first_seed: u64,
    seeds: u64,
}

/// So many fit into ten minutes on two cores.
const MOST_SEEDS: u64 = 10;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(faults) => {
            println!("{faults} faults");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("chaos could not run: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<usize> {
    // The HTTP client comes without a TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = options()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let begun = Instant::now();
    let mut found = 0;
    for seed in options.first_seed..options.first_seed + options.seeds {
        let folder = tempfile::Builder::new().prefix("ensemble-chaos-").tempdir()?;
        let story = story::live_through(seed, folder.path());
        // What cannot be gone through is a fault of this seed, and no reason to spare the others.
        let faults = runtime.block_on(story).unwrap_or_else(|error| vec![format!("the story broke off: {error:#}")]);
        for fault in faults.iter().take(20) {
            println!("  {fault}");
        }
        if !faults.is_empty() {
            println!("seed {seed}: {} faults; history and logs: {}", faults.len(), folder.keep().display());
            println!("again: make chaos SEED={seed} SEEDS=1");
        }
        found += faults.len();
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
