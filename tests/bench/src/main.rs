//! `make bench`: load on the release services. Each figure is measured beside a baseline on the same machine at the
//! same time, because absolute figures depend on the machine and ratios do not.
//!
//! The rounds of a row alternate with those of its baseline. The table shows medians and the spread.

#![expect(clippy::print_stdout, reason = "the benchmark prints its table")]

mod load;
mod machine;
mod rows;
mod stats;
mod table;

use anyhow::Result;

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
    let mut report = table::Report::new(options.rounds);
    let machine = machine::Machine::start(&options)?;
    for row in rows::ALL {
        if options.wants(row.name) {
            eprintln!("── {}", row.name);
            if let Err(error) = (row.measure)(&machine, &options, &mut report) {
                report.failed(row.name, &error);
            }
        }
    }
    print!("{report}");
    if report.complete() { Ok(()) } else { anyhow::bail!("some rows could not be measured") }
}
