//! `ensemble up`: runs everything on this machine with one command.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::DONE;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Starts all services in one process, with an embedded database, and a runner for this machine. Creates your account
/// key if there is none, so that the other commands work at once. Ctrl-C stops everything.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The address to listen on (port 0: any free port)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The directory of databases and keys [default: `data` beside the account key]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Start no runner
    #[arg(long)]
    no_runner: bool,
    #[command(flatten)]
    runner: super::runner::Options,
}

#[cfg(not(feature = "up"))]
impl Up {
    pub(crate) async fn run(self, _context: &Context) -> Result {
        let _ = (self.listen, self.data, self.no_runner, self.runner, DONE);
        Err(Failure::message(
            "This `ensemble` was built without the services. Build it with the feature `up`, or use --server.",
        ))
    }
}

#[cfg(feature = "up")]
mod services {
    use std::time::Duration;

    use ensemble_all_in_one::{Config, Stack};
    use ensemble_runner::{Drain, run_until};
    use tokio::signal::unix::{Signal, SignalKind, signal};
    use tokio::task::JoinHandle;
    use tracing_subscriber::filter::{LevelFilter, Targets};

    use super::{Context, DONE, Failure, Result, Up};
    use crate::commands::runner::{Options, chain, environment, for_machine, log};
    use crate::context::Me;
    use crate::print;

    impl Up {
        pub(crate) async fn run(self, context: &Context) -> Result {
            log(Targets::new().with_default(LevelFilter::WARN).with_target("ensemble_runner", LevelFilter::INFO));
            let mut signals = Signals::listen()?;
            let data = self.data.unwrap_or_else(|| context.home.path().join("data"));
            let config = Config::new(&data, self.listen);
            let stack = tokio::select! {
                stack = Stack::start(config) => stack.map_err(|error| Failure::message(format!("{error:#}.")))?,
                () = signals.next() => return Ok(DONE),
            };
            let server = stack.url().to_owned();
            let ready = tokio::select! {
                ready = set_up(context, &server, !self.no_runner, self.runner) => Some(ready),
                () = signals.next() => None,
            };
            let runner = match ready {
                Some(Ok(runner)) => runner,
                Some(Err(failure)) => {
                    stack.stop().await;
                    return Err(failure);
                }
                None => {
                    stack.stop().await;
                    return Ok(DONE);
                }
            };
            signals.next().await;
            print::note("Stopping. Press Ctrl-C again to stop at once.");
            tokio::select! {
                () = stop(stack, runner) => Ok(DONE),
                () = signals.next() => Err(Failure::message("Stopped before everything was drained.")),
            }
        }
    }

    /// A runner and the handle that stops it.
    type Running = (Drain, JoinHandle<()>);

    /// Signs in the user of this machine, starts the runner, and prints what to do next.
    async fn set_up(context: &Context, server: &str, with_runner: bool, options: Options) -> Result<Option<Running>> {
        let context = context.at(server);
        let me = context.sign_in_or_register().await?;
        let runner = if with_runner { Some(start_runner(&context, &me, options).await?) } else { None };
        context.home.change_settings(|settings| settings.server = Some(server.to_owned()))?;
        if context.json {
            print::json(
                &serde_json::json!({ "url": server, "docs": format!("{server}/docs"), "userId": me.id }),
                true,
            )?;
            return Ok(runner);
        }
        print::line(format!("Ensemble is up at {server}"))?;
        print::line(format!("  the API and its documentation: {server}/docs"))?;
        print::line("\nIn another terminal:")?;
        print::line("  ensemble run examples/review.yaml            # three tasks, done by an agent on this machine")?;
        print::line("  ensemble session create --title \"Hello\"      # encrypted before it leaves this machine")?;
        print::line("  ensemble machine list\n")?;
        print::line("Ctrl-C stops it.")?;
        Ok(runner)
    }

    async fn start_runner(context: &Context, me: &Me, options: Options) -> Result<Running> {
        let here = std::env::current_dir();
        let options = match (environment().remove("HOME"), here) {
            // The current directory and the home directory.
            (home, Ok(here)) if options.is_without_roots() => {
                let options = options.with_root(here);
                home.map_or(options.clone(), |home| options.with_root(home.into()))
            }
            _ => options,
        };
        let config = for_machine(context, me, &options).await?;
        let drain = Drain::default();
        let stop_handle = drain.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = run_until(config, stop_handle).await {
                print::note(format!("The runner on this machine stopped: {}.", chain(&error)));
            }
        });
        Ok((drain, task))
    }

    /// Stops the runner first, so that it can hand back its attempts.
    async fn stop(stack: Stack, runner: Option<Running>) {
        if let Some((drain, task)) = runner {
            drain.hurry();
            let ended = tokio::time::timeout(Duration::from_secs(20), task).await;
            if ended.is_err() {
                print::note("The runner did not stop in time.");
            }
        }
        stack.stop().await;
    }

    struct Signals {
        interrupt: Signal,
        terminate: Signal,
    }

    impl Signals {
        fn listen() -> Result<Self> {
            let listen =
                |kind| signal(kind).map_err(|error| Failure::message(format!("Cannot listen for signals: {error}.")));
            Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
        }

        async fn next(&mut self) {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
        }
    }
}
