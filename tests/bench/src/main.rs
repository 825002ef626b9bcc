//! `make bench`: load on the release services. Each figure is measured with a baseline on the same machine at the
//! same time, because absolute figures depend on the machine and ratios do not.
//!
//! The rounds of a row alternate with those of its baseline. The table shows medians and the spread. `make bench-quick` measures some rows
//! in a few minutes and compares them with the release before, whose figures `make bench-last` has written.

#![expect(clippy::print_stdout, reason = "the benchmark prints its table")]

mod before;
mod load;
mod machine;
mod postgres;
mod rows;
mod started;
mod stats;
mod table;

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail, ensure};

use before::Figures;

fn main() -> Result<()> {
    if let Some(ended_at) = std::env::var_os(rows::live_agent::AGENT) {
        return rows::live_agent::agent(ended_at.as_ref());
    }
    if std::env::var_os(rows::scripted_claude::SCRIPT).is_some() {
        return rows::scripted_claude::agent();
    }
    // reqwest is built without a default TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = machine::Options::from_args()?;
    for name in &options.only {
        ensure!(rows::ALL.iter().any(|row| row.name == name), "no row is called {name}");
    }
    let before = options.before.as_deref().map(read_before).transpose()?.flatten();
    let mut report = table::Report::new(options.rounds, before);
    let machine = machine::Machine::start(&options)?;
    started::end_when_interrupted(machine.scratch.path().to_owned())?;
    let server = postgres::described(&machine)?;
    let begun = Instant::now();
    for row in rows::ALL {
        if options.wants(row.name) {
            let row_begun = Instant::now();
            eprintln!("── {}", row.name);
            let measured = (row.measure)(&machine, &options, &mut report);
            started::wait_if_interrupted();
            if let Err(error) = measured {
                report.failed(row.name, &error);
            }
            // What is left of one row would disturb the next one.
            if let Err(error) = started::end_all() {
                report.failed(row.name, &error);
            }
            eprintln!("   {} s", row_begun.elapsed().as_secs());
        }
    }
    let figures = report.figures();
    println!("\n{server}\nIt took {} s.", begun.elapsed().as_secs());
    print!("{report}");
    if let Some(file) = &options.write {
        figures.write(file, !options.only.is_empty())?;
    }
    if report.complete() { Ok(()) } else { bail!("some rows could not be measured") }
}

/// The figures of the release before. Without them nothing is compared.
fn read_before(file: &Path) -> Result<Option<Figures>> {
    let before = Figures::read(file)?;
    if before.is_none() {
        eprintln!("{} does not exist, so nothing is compared. `make bench-last` writes it.", file.display());
    }
    Ok(before)
}
