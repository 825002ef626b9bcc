//! `ensemble runner`: the daemon that runs tasks on this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use ensemble_account::Account;
use ensemble_account::this_machine::{Registered, Secret};
use ensemble_host::Hosting;
use ensemble_host::sign_in::Missing;
use ensemble_runner::{Accept, Config, RunError, offers, run};
use ensemble_types::ids::MachineId;
use ensemble_types::runs::Provider;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::DONE;
use super::install::{Install, Uninstall};
use super::join;
use crate::context::Context;
use crate::environment::environment;
use crate::failure::{Failure, Result};
use crate::foot;
use crate::live;
use crate::print;

/// Takes tasks for this machine and runs them with `claude`, `codex` and `gemini`. The first Ctrl-C lets running tasks
/// continue for a while, the second hands them back.
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
    /// Show which providers this machine can offer, and why not the others
    Check(Options),
    /// Add this computer as a machine to an account whose key stays elsewhere: asks for the address that `ensemble link` shows there
    Link,
    /// Host live sessions and nothing else. `ensemble claude` starts this in the background
    #[command(hide = true)]
    Host,
    Install(Install),
    Uninstall(Uninstall),
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Options {
    /// The runner's configuration (YAML) [default: runner.yaml next to the account key, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A directory in which tasks may work; can be repeated [default: the home directory]
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// How many tasks may run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    capacity: Option<u32>,
}

impl Runner {
    pub(crate) async fn run(self, context: &Context) -> Result {
        match self.part {
            Some(Part::Check(options)) => return check(context, &options).await,
            Some(Part::Link) => return link(context).await,
            Some(Part::Install(install)) => return install.run(context).await,
            Some(Part::Uninstall(uninstall)) => return uninstall.run(context),
            Some(Part::Host) => return host(context).await,
            None => {}
        }
        log(Targets::new().with_default(LevelFilter::INFO));
        let environment = environment();
        // A machine without an account has a token, or was linked.
        let is_given = ["ENSEMBLE_MACHINE_TOKEN", "ENSEMBLE_MACHINE_KEY_FILE"];
        let linked = context.linked_here()?;
        let (me, config) = if is_given.iter().any(|name| environment.contains_key(*name)) {
            (None, self.options.config(context, environment)?)
        } else if let Some(linked) = linked {
            let path = context.home.linked_key_path(&linked.origin, &linked.machine.machine);
            let secret = Secret::Key(path);
            let mut config = self.options.of(context, &linked.machine.server, &linked.machine.machine, &secret)?;
            if let Some(list) = context.home.known_list(&linked.origin, linked.machine.owner)? {
                config.hosting = Some(hosting(context, &linked.machine.machine, &list.body().account)?);
            }
            (None, config)
        } else {
            let me = context.me().await?;
            let config = for_machine(context, &me, &self.options).await?;
            (Some(me), config)
        };
        let machine = config.machine.clone();
        match run(config).await {
            Ok(()) => Ok(DONE),
            Err(error @ RunError::NotAccepted) => {
                print::note(format!("The runner stopped: {error}."));
                if let Some(linked) = context.linked_here()?.filter(|_| me.is_none()) {
                    // Its owner has removed it. The next runner is not this machine any more.
                    context.forget_link(&linked)?;
                    print::note("This computer is no machine of that account any more.");
                }
                let is_deleted = match &me {
                    Some(me) => me.client.machine(&machine).await.is_err_and(|error| error.is_not_found()),
                    None => false,
                };
                // Service managers start again what failed. That gives a machine a new token, and must not register one
                // again that a person has deleted.
                Ok(if is_deleted { DONE } else { ExitCode::FAILURE })
            }
            Err(error) => Err(Failure::message(format!("The runner failed: {}.", chain(&error)))),
        }
    }
}

/// Adds this computer to an account as a machine.
async fn link(context: &Context) -> Result {
    let (server, machine) = join::as_machine(context).await?;
    if context.json {
        print::json(&serde_json::json!({ "server": server, "machineId": machine }), false)?;
    } else {
        print::line(format!(
            "This computer is a machine of the account at {server}. `ensemble runner` runs its tasks."
        ))?;
    }
    Ok(DONE)
}

/// The configuration of this machine's runner. Registers the machine if needed, and uses its stored key or token.
pub(crate) async fn for_machine(context: &Context, me: &Account, options: &Options) -> Result<Config> {
    let Registered { machine, credential } = me.register_this(None).await?;
    let origin = me.client.origin();
    let mut config = options.of(context, me.client.base().as_str(), &machine.id, &credential)?;
    config.hosting = Some(hosting(context, &machine.id, me.owner().account)?);
    if config.check_accept().is_err() && !me.is_primary() {
        return Err(is_linked(context));
    }
    context.home.change_settings(|settings| {
        settings.runner_roots.insert(origin.to_owned(), config.roots.clone());
    })?;
    Ok(config)
}

/// Why a linked device's computer has no runner, and what to do.
fn is_linked(context: &Context) -> Failure {
    let key = context.home.key_path();
    let key = key.display();
    Failure::message(format!(
        "This computer is a linked device of its account, which cannot give its runner a key. Add it again: `mv {key} \
         {key}.linked`, then `ensemble login --link`, and on the other device allow it to add devices (`ensemble link --role primary`, \
         or the box in the web app). Or add the runner alone: `ensemble runner link` here, `ensemble link` on a computer that may add devices."
    ))
}

/// This machine's live sessions. The owner's account key is the one that this computer has checked.
fn hosting(context: &Context, machine: &MachineId, account: &str) -> Result<Hosting> {
    let folder = live::host::folder(&context.home, machine);
    let usual = [Some(context.home.path().to_owned()), crate::home::usual_data()].into_iter().flatten();
    // `up` notes its data before it starts a runner.
    let used = context.home.settings()?.data.into_values().flat_map(BTreeMap::into_values).map(|known| known.path);
    let own = usual.chain(used).collect();
    Ok(Hosting { account: account.to_owned(), folder, own, sessions_only: false, ready: Arc::default() })
}

/// Hosts sessions until some time after the last one.
async fn host(context: &Context) -> Result {
    // The terminal that started it may be closed.
    let _ = rustix::process::setsid();
    log(Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets([("ensemble_host", LevelFilter::INFO), ("ensemble_runner", LevelFilter::INFO)]));
    let me = context.signed_in().await?;
    let mut config = for_machine(context, &me, &Options::default()).await?;
    let hosting = config.hosting.as_mut().map(|hosting| {
        hosting.sessions_only = true;
        hosting.ready.clone()
    });
    if let Some(ready) = hosting {
        tokio::spawn(async move {
            ready.notified().await;
            // The program that started it has gone, which is no reason to end.
            let _ = print::line(live::host::READY);
        });
    }
    run(config).await.map_err(|error| Failure::message(format!("The host failed: {}.", chain(&error))))?;
    Ok(DONE)
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

    /// The options as they are typed, with absolute paths.
    pub(crate) fn as_arguments(&self) -> Result<Vec<String>> {
        let path = |path: &PathBuf| {
            let path =
                path.canonicalize().map_err(|error| Failure::message(format!("{}: {error}.", path.display())))?;
            path.into_os_string()
                .into_string()
                .map_err(|path| Failure::message(format!("{path:?} is not valid UTF-8.")))
        };
        let mut arguments = Vec::new();
        if let Some(config) = &self.config {
            arguments.extend(["--config".to_owned(), path(config)?]);
        }
        for root in &self.roots {
            arguments.extend(["--root".to_owned(), path(root)?]);
        }
        if let Some(capacity) = self.capacity {
            arguments.extend(["--capacity".to_owned(), capacity.to_string()]);
        }
        Ok(arguments)
    }

    /// The configuration, for checks that use neither its server nor its token.
    pub(crate) fn for_check(&self, context: &Context) -> Result<Config> {
        self.config(context, with_unused(environment()))
    }

    /// The configuration of this machine at a server.
    fn of(&self, context: &Context, server: &str, machine: &MachineId, secret: &Secret) -> Result<Config> {
        let mut environment = environment();
        environment.insert("ENSEMBLE_SERVER".to_owned(), server.to_owned());
        environment.insert("ENSEMBLE_MACHINE_ID".to_owned(), machine.to_string());
        match secret {
            Secret::Key(path) => {
                environment.insert("ENSEMBLE_MACHINE_KEY_FILE".to_owned(), path.display().to_string());
            }
            Secret::Token(path) => {
                let token = std::fs::read_to_string(path)
                    .map_err(|error| Failure::message(format!("Cannot read {}: {error}.", path.display())))?;
                environment.insert("ENSEMBLE_MACHINE_TOKEN".to_owned(), token);
            }
        }
        self.config(context, environment)
    }

    fn config(&self, context: &Context, mut environment: BTreeMap<String, String>) -> Result<Config> {
        if let Some(capacity) = self.capacity {
            environment.insert("ENSEMBLE_RUNNER_CAPACITY".to_owned(), capacity.to_string());
        }
        let default = context.home.path().join("runner.yaml");
        let file = self.config.clone().unwrap_or_else(|| default.clone());
        let read = (self.config.is_some() || default.exists()).then_some(&*file);
        let config = Config::read(read, &environment).map_err(|errors| {
            Failure::message(format!("The runner's configuration has errors:\n  {}", errors.0.join("\n  ")))
        })?;
        // A file that is made later counts as well.
        let mut config = config.watching(file);
        if !self.roots.is_empty() {
            config.roots = Vec::with_capacity(self.roots.len());
            for root in &self.roots {
                let root =
                    root.canonicalize().map_err(|error| Failure::message(format!("{}: {error}.", root.display())))?;
                config.roots.push(root);
            }
        }
        Ok(config)
    }
}

async fn check(context: &Context, options: &Options) -> Result {
    let config = options.for_check(context)?;
    if config.accepts() == Accept::Any {
        print::note(
            "Warning: `accept: any` in runner.yaml: a server that lies can make this machine do whatever its configuration allows.",
        );
    }
    let offers = offers(&config).await;
    if context.json {
        let providers: Vec<_> = offers
            .iter()
            .map(|offer| {
                let reason = offer.program.as_ref().err().map(|not| &not.reason);
                let missing = config.missing(offer.provider);
                let missing: Vec<_> = missing.iter().map(|missing| missing.variable.as_str()).collect();
                serde_json::json!({
                    "provider": offer.provider, "program": offer.program.as_ref().ok(), "version": offer.version,
                    "signedIn": offer.signed_in, "reason": reason, "missing": missing,
                })
            })
            .collect();
        print::json(&serde_json::json!({ "providers": providers }), false)?;
        return Ok(DONE);
    }
    for offer in &offers {
        match &offer.program {
            Ok(program) => {
                let version = offer.version.as_deref().unwrap_or("unknown version");
                let (mark, unknown) = match offer.signed_in {
                    Some(_) => ("✓", ""),
                    None => ("?", ", does not say whether it is signed in"),
                };
                let provider = offer.provider.as_str();
                print::line(format!("{mark} {provider:7} {version:12} {}{unknown}", program.display()))?;
            }
            Err(not) => print::line(format!("✗ {:7} {}", offer.provider.as_str(), not.reason))?,
        }
        for missing in config.missing(offer.provider) {
            print::line(format!("          {}", lacks(offer.provider, &missing)))?;
        }
    }
    Ok(if offers.iter().any(|offer| offer.program.is_ok()) { DONE } else { ExitCode::FAILURE })
}

/// What to do about a variable that a program needs to sign in.
fn lacks(provider: Provider, missing: &Missing) -> String {
    let Missing { variable, chosen_by, is_kept_back } = missing;
    let provider = provider.as_str();
    if *is_kept_back {
        return format!(
            "{variable} is set, and {provider} does not get it: add it to providers.{provider}.passEnv in runner.yaml"
        );
    }
    format!(
        "{chosen_by} is set, and {variable} is not: set it, or put it under providers.{provider}.env in runner.yaml"
    )
}

/// A check must work without the settings that it does not use.
fn with_unused(mut environment: BTreeMap<String, String>) -> BTreeMap<String, String> {
    for (name, value) in [("ENSEMBLE_SERVER", "http://unused"), ("ENSEMBLE_MACHINE_TOKEN", "unused")] {
        environment.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    environment.entry("ENSEMBLE_MACHINE_ID".to_owned()).or_insert_with(|| MachineId::generate().to_string());
    environment
}

/// Logs to standard error. `RUST_LOG` says what, and `LOG_FORMAT=json` selects the format of the services.
pub(crate) fn log(default: Targets) {
    let filter = environment().get("RUST_LOG").and_then(|text| text.parse().ok()).unwrap_or(default);
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(|| foot::Log);
    // Where the log cannot be written either, saying so would end what was about to be done: `eprintln!` panics.
    let lines = lines.log_internal_errors(false);
    // A logger that was set up before is kept.
    let _already_set_up = if environment().get("LOG_FORMAT").is_some_and(|format| format == "json") {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).finish().with(filter).try_init()
    } else {
        lines.finish().with(filter).try_init()
    };
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
