//! The runner as its own program: `ensemble-runner [CONFIG]` runs it, and it starts `ensemble-runner runner guard` for
//! each attempt. `ensemble runner` of the command line uses the same library.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use ensemble_runner::{Config, run, run_if_demo, run_if_guard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Wrong usage or configuration (sysexits.h).
const EX_USAGE: u8 = 64;

fn main() -> ExitCode {
    if let Some(code) = run_if_guard().or_else(run_if_demo) {
        return ExitCode::from(code);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => daemon(None),
        [path] => daemon(Some(PathBuf::from(path))),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: ensemble-runner [CONFIG]");
    ExitCode::from(EX_USAGE)
}

fn daemon(path: Option<PathBuf>) -> ExitCode {
    let vars = std::env::vars().collect();
    let wanted = BTreeMap::get(&vars, "RUST_LOG").and_then(|text| text.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(std::io::stderr);
    // Where the log cannot be written either, saying so would end what was about to be done: `eprintln!` panics.
    let lines = lines.log_internal_errors(false).finish();
    lines.with(filter).init();
    let config = match Config::read(path.as_deref(), &vars) {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(EX_USAGE);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(config)).map_err(|error| chain(&error)),
        Err(error) => Err(error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
