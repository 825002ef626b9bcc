//! `ensemble runner`: the daemon that has agents do tasks on this machine.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ensemble_runner::{Config, guard_main, offers, run};
use ensemble_types::ids::MachineId;

use super::DONE;
use super::machine::Register;
use crate::context::{Context, Me};
use crate::failure::{Failure, Result};
use crate::print;

/// Takes tasks for this machine and has `claude`, `codex` and `gemini` do them, until it is told to stop. The first
/// Ctrl-C lets what runs go on for a while; the second hands it back.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Runner {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Say which providers this machine can offer, and why not the others
    Check(Options),
    /// What the runner starts for each attempt
    #[command(hide = true)]
    Guard {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Options {
    /// The runner's configuration (YAML) [default: runner.yaml beside the account key, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A directory below which tasks may work; may be given several times [default: the home directory]
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// How many tasks at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    capacity: Option<u32>,
}

impl Runner {
    pub(crate) fn is_guard(&self) -> bool {
        matches!(self.part, Some(Part::Guard { .. }))
    }

    /// Everything a guard does happens in this call; it knows neither server nor account.
    pub(crate) fn guard(self) -> Result {
        let rest = match self.part {
            Some(Part::Guard { rest }) => rest,
            _ => Vec::new(),
        };
        Ok(ExitCode::from(u8::try_from(guard_main(&rest)).unwrap_or(1)))
    }

    pub(crate) async fn run(self, context: &Context) -> Result {
        if let Some(Part::Check(options)) = &self.part {
            return check(context, options);
        }
        log("info");
        let environment = environment();
        let config = if environment.contains_key("ENSEMBLE_MACHINE_TOKEN") {
            // A machine without an account key: its token says all there is to say.
            self.options.config(context, environment)?
        } else {
            let me = context.me().await?;
            for_machine(context, &me, &self.options).await?
        };
        run(config).await.map_err(|error| Failure::said(format!("The runner cannot go on: {}.", chain(&error))))?;
        Ok(DONE)
    }
}

/// The runner of this machine: registered if it was not, with the token that was kept for it.
pub(crate) async fn for_machine(context: &Context, me: &Me, options: &Options) -> Result<Config> {
    let machine = Register::default().run(context, me).await?.id;
    let origin = me.client.origin();
    let token_file = context.home.machine_token_path(origin, &machine);
    let token = std::fs::read_to_string(&token_file)
        .map_err(|error| Failure::said(format!("Cannot read {}: {error}.", token_file.display())))?;
    let mut environment = environment();
    environment.insert("ENSEMBLE_SERVER".to_owned(), me.client.base().to_string());
    environment.insert("ENSEMBLE_MACHINE_ID".to_owned(), machine.to_string());
    environment.insert("ENSEMBLE_MACHINE_TOKEN".to_owned(), token);
    options.config(context, environment)
}

impl Options {
    #[cfg(feature = "up")]
    pub(crate) fn is_without_roots(&self) -> bool {
        self.roots.is_empty()
    }

    #[cfg(feature = "up")]
    pub(crate) fn with_root(mut self, root: PathBuf) -> Self {
        self.roots.push(root);
        self
    }

    fn config(&self, context: &Context, mut environment: BTreeMap<String, String>) -> Result<Config> {
        if let Some(capacity) = self.capacity {
            environment.insert("ENSEMBLE_RUNNER_CAPACITY".to_owned(), capacity.to_string());
        }
        let usual = context.home.path().join("runner.yaml");
        let file = self.config.clone().or_else(|| usual.exists().then_some(usual));
        let mut config = Config::read(file.as_deref(), &environment).map_err(|errors| {
            Failure::said(format!("The runner's configuration is not usable:\n  {}", errors.0.join("\n  ")))
        })?;
        if !self.roots.is_empty() {
            config.roots = Vec::with_capacity(self.roots.len());
            for root in &self.roots {
                let root =
                    root.canonicalize().map_err(|error| Failure::said(format!("{}: {error}.", root.display())))?;
                config.roots.push(root);
            }
        }
        Ok(config)
    }
}

fn check(context: &Context, options: &Options) -> Result {
    let mut environment = environment();
    // What a check does not need must not keep it from being made.
    for (name, value) in [("ENSEMBLE_SERVER", "http://unused"), ("ENSEMBLE_MACHINE_TOKEN", "unused")] {
        environment.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    environment.entry("ENSEMBLE_MACHINE_ID".to_owned()).or_insert_with(|| MachineId::generate().to_string());
    let offers = offers(&options.config(context, environment)?);
    if context.json {
        let providers: Vec<_> = offers
            .iter()
            .map(|offer| {
                let (program, reason) = (offer.program.as_ref().ok(), offer.program.as_ref().err());
                serde_json::json!({ "provider": offer.provider, "program": program, "reason": reason })
            })
            .collect();
        print::json(&serde_json::json!({ "providers": providers }), false)?;
        return Ok(DONE);
    }
    for offer in &offers {
        match &offer.program {
            Ok(program) => print::line(format!("✓ {:7} {}", offer.provider, program.display()))?,
            Err(reason) => print::line(format!("✗ {:7} {reason}", offer.provider))?,
        }
    }
    Ok(if offers.iter().any(|offer| offer.program.is_ok()) { DONE } else { ExitCode::FAILURE })
}

/// This process's variables, as far as they are text.
fn environment() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Logs on standard error; `RUST_LOG` says how much, `LOG_FORMAT=json` that they are for programs, as those of services.
pub(crate) fn log(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // Somebody has set one up already, which is as good.
    let _set_up_before = if std::env::var_os("LOG_FORMAT").is_some_and(|format| format == "json") {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    } else {
        lines.try_init()
    };
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
