//! `make bench`: the release services under real load, each figure beside a rival that runs on the same machine in the
//! same minute. Absolute figures depend on the machine; ratios depend on us.
//!
//! Every row is measured in rounds that alternate with its rival; the table shows medians and the spread.

mod load;
mod machine;
mod rows;
mod stats;
mod table;

use anyhow::Result;

fn main() -> Result<()> {
    // The HTTP client comes without a TLS provider.
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
