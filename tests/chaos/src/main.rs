//! `make chaos`: kills services and PostgreSQL under load, cuts and delays the links between them, and then checks that
//! everything that was answered is true.
//!
//! One seed decides everything that this program decides; what the machine decides (who is scheduled when) it cannot.
//! A failure prints the seed to try again with.

mod acts;
mod history;
mod load;
mod proxy;
mod stage;
mod town;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

struct Options {
    first_seed: u64,
    seeds: u64,
    seconds: u64,
}

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
    let mut found = 0;
    for seed in options.first_seed..options.first_seed + options.seeds {
        let faults = runtime.block_on(town::live_through(seed, Duration::from_secs(options.seconds)))?;
        for fault in faults.iter().take(20) {
            println!("  {fault}");
        }
        if !faults.is_empty() {
            println!("seed {seed}: {} faults; again with `make chaos SEED={seed} SEEDS=1`", faults.len());
        }
        found += faults.len();
    }
    Ok(found)
}

/// `ensemble-chaos [--seed N] [--seeds N] [--seconds N]`
fn options() -> Result<Options> {
    let mut options = Options { first_seed: 1, seeds: 10, seconds: 30 };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().and_then(|n| n.parse().ok()).with_context(|| format!("{flag} wants a number"))?;
        match flag.as_str() {
            "--seed" => options.first_seed = value,
            "--seeds" => options.seeds = value,
            "--seconds" => options.seconds = value,
            _ => bail!("unknown flag {flag}; there are --seed, --seeds, --seconds"),
        }
    }
    if options.seeds * (options.seconds + 25) > 600 {
        bail!("that would take more than 10 minutes: fewer seeds or seconds, please");
    }
    Ok(options)
}
