//! `ensemble up`: runs everything on this machine with one command.

#[cfg(feature = "up")]
mod alone;
#[cfg(feature = "up")]
mod banner;
#[cfg(feature = "up")]
mod beginning;
#[cfg(feature = "up")]
mod person;
#[cfg(feature = "up")]
mod registration;
#[cfg(feature = "up")]
mod running;
#[cfg(feature = "up")]
mod service;
#[cfg(feature = "up")]
mod signals;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::context::Context;
use crate::failure::{Failure, Result};

/// Starts all services in one process, with an embedded database, and a runner for this machine. Creates your account
/// key unless it exists, so that the other commands work at once. Ctrl-C stops everything.
#[derive(Debug, Args)]
#[cfg_attr(not(feature = "up"), allow(dead_code, reason = "the services read them"))]
pub(crate) struct Up {
    /// The address to listen on (port 0: any free port)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,
    /// The address at which others reach this server, as in https://ensemble.example.com [default: PUBLIC_BASE_URL; when
    /// it listens on all addresses, those of this machine]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// A port on this machine for a proxy of your own in front of --public-url, which says in X-Forwarded-For whom it carries
    #[arg(long, value_name = "PORT")]
    proxy_port: Option<u16>,
    /// Let others reach this server by https through a program that you have: `tailscale` (your own devices), `funnel` (Tailscale, for
    /// everyone), `cloudflared` (for everyone, with a new address each time) or `ssh USER@HOST` with --public-url. Alone it takes tailscale,
    /// else cloudflared. It ends with this program
    #[arg(long, value_name = "KIND", num_args = 0..=2, conflicts_with = "tls_cert")]
    tunnel: Option<Vec<String>>,
    /// The file of a certificate and its chain, in PEM: serves HTTPS, too. It needs --public-url
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "public_url"])]
    tls_cert: Option<PathBuf>,
    /// The file of the certificate's private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Where to serve HTTPS
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443", value_parser = address, requires = "tls_cert")]
    tls_listen: SocketAddr,
    /// The directory of databases and keys [default: $XDG_DATA_HOME/ensemble, or `data` in ENSEMBLE_HOME]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Use this data although your account was used at this address with other data
    #[arg(long)]
    other_data: bool,
    /// Start no runner
    #[arg(long)]
    no_runner: bool,
    /// Make no account and sign in nowhere: a server alone, as in a container. The log has the address that makes the first account
    #[arg(long, requires = "no_runner", conflicts_with_all = ["new_account", "other_data", "tunnel", "install"])]
    no_account: bool,
    /// Do not open this computer's browser. It opens by itself as long as your account has none
    #[arg(long)]
    no_open: bool,
    /// Begin a new account when the key of the one that was used here is lost
    #[arg(long)]
    new_account: bool,
    /// Write a service of yours that runs this whenever this machine starts. Prints what it would write and run, and asks first
    #[arg(long, conflicts_with_all = ["uninstall", "other_data", "new_account"])]
    install: bool,
    /// Stop the service of --install and remove it. Your data stays
    #[arg(long)]
    uninstall: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    runner: super::runner::Options,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "must be an address and a port, like 127.0.0.1:8080, or 0.0.0.0:8080 for others too")
}

#[cfg(not(feature = "up"))]
impl Up {
    pub(crate) async fn run(self, _context: &Context) -> Result {
        Err(Failure::message(
            "This `ensemble` was built without the services. Build it with the feature `up`, or use --server.",
        ))
    }
}

#[cfg(feature = "up")]
mod services {
    use std::net::TcpListener;
    use std::path::Path;
    use std::time::Duration;

    use ensemble_account::{Account, Begun, Wanted};
    use ensemble_all_in_one::{Config, Stack, TlsSettings, proxy_listener};
    use ensemble_computer::tunnel::{Around, Kind, Prepared};
    use ensemble_runner::{Accept, offers};
    use tracing_subscriber::filter::{LevelFilter, Targets};

    use super::alone::{alone, stop};
    use super::banner::{Agents, banner, is_same};
    use super::beginning::{first_account, not_started};
    use super::person::Person;
    use super::registration::{OF_ADDRESS, OF_REGISTRATION, is_open, is_set};
    use super::running::{Running, drain, start_runner};
    use super::service::UP;
    use super::signals::Signals;
    use super::{Context, Failure, Result, Up};
    use crate::commands::DONE;
    use crate::commands::demo::remove_left;
    use crate::commands::install::uninstall;
    use crate::commands::runner::{Options, for_machine, log};
    use crate::context::{ChosenBy, anonymous, answers, once};
    use crate::environment::environment;
    use crate::print;

    /// Why a server that others reach does not start with a runner that takes what is not signed.
    const ACCEPTS_ANY: &str = "Others can reach this server, and the runner's configuration has `accept: any`: anyone who reads a token on \
                               the way could have agents work on this computer. Take `accept: any` out of the configuration and submit with \
                               `ensemble`, which signs. Or leave out --listen, --public-url and --tunnel, or start no runner: --no-runner.";

    /// A proxy that leads to the listener of this machine's programs makes them share their limits with all its visitors.
    const PROXY_ON_LOOPBACK: &str = "TRUSTED_PROXIES does not count at an address that only this computer reaches. Leave it out, and give the \
                                     proxy a port of its own: `ensemble up --public-url https://NAME --proxy-port PORT`.";

    impl Up {
        pub(crate) async fn run(mut self, context: &Context) -> Result {
            log(Targets::new()
                .with_default(LevelFilter::WARN)
                .with_target("ensemble_identity", if self.no_account { LevelFilter::INFO } else { LevelFilter::WARN })
                .with_targets([("ensemble_host", LevelFilter::INFO), ("ensemble_runner", LevelFilter::INFO)]));
            if self.uninstall {
                return uninstall(context, UP, self.yes);
            }
            self.runner = here_and_home(self.runner);
            // What can be refused is refused before anything is created.
            let (unsigned, tunnel) = self.checked(context)?;
            let wanted = |new_account| match self.no_account {
                true => Ok(Wanted::Usual),
                false => context.wanted_by_up(new_account),
            };
            wanted(self.new_account)?;
            let data = self.data.clone().unwrap_or_else(|| context.home.data());
            if !self.other_data && self.listen.port() != 0 {
                crate::data::check(context, &data, self.listen)?;
            }
            if self.install {
                return self.installed(context, &data).await;
            }
            let mut signals = Signals::listen()?;
            // It belongs to this program before anyone is led there.
            let proxy = self.proxy_port.or(tunnel.is_some().then_some(0)).map(proxy_listener).transpose();
            let proxy = proxy.map_err(|error| Failure::message(format!("{error:#}.")))?;
            let port = proxy.as_ref().map(TcpListener::local_addr).transpose()?.map_or(0, |at| at.port());
            let is_by_invitation =
                (self.no_account || self.is_for_others(tunnel.is_some())) && !OF_REGISTRATION.into_iter().any(is_set);
            let is_named = OF_REGISTRATION.into_iter().any(|name| is_set(name) && !is_open(name));
            let is_limited = !self.no_account && (is_by_invitation || is_named);
            let begun = async {
                let prepared = match tunnel {
                    Some(tunnel) => Some(Prepared::new(tunnel, self.public_url.as_ref(), environment()).await?),
                    None => None,
                };
                if is_limited || prepared.is_some() {
                    first_account(context, &data, self.listen, self.new_account).await?;
                }
                match prepared {
                    Some(prepared) => Ok::<_, Failure>(Some(prepared.start(port).await?)),
                    None => Ok(None),
                }
            };
            let tunnel = tokio::select! {
                tunnel = begun => tunnel?,
                () = signals.next() => return Ok(DONE),
            };
            let wanted = wanted(self.new_account && tunnel.is_none() && !is_limited)?;
            let options = (!self.no_runner).then_some((self.runner, unsigned));
            let mut config = Config::new(&data, self.listen);
            config.proxy = proxy;
            let makes_accounts = OF_REGISTRATION.into_iter().any(is_open);
            if let Some(tunnel) = &tunnel {
                self.public_url = Some(tunnel.address().to_owned());
            }
            if is_by_invitation {
                // The person's own account is there already, or the log has the address that makes the first one.
                config.vars.push(("REGISTRATION".to_owned(), "invite".to_owned()));
            }
            let files = self.tls_cert.zip(self.tls_key);
            config.tls = files.map(|(certificate, key)| TlsSettings { listen: self.tls_listen, certificate, key });
            config.vars.extend(self.public_url.map(|url| ("PUBLIC_BASE_URL".to_owned(), url)));
            let stack = tokio::select! {
                stack = Stack::start(config) => match stack {
                    Ok(stack) => stack,
                    Err(error) => return Err(not_started(context, &format!("{error:#}.")).await),
                },
                () = signals.next() => return Ok(DONE),
            };
            if self.no_account {
                return alone(context, stack, &mut signals).await;
            }
            let ready = tokio::select! {
                ready = set_up(context, (&stack, &data), wanted, options, (self.no_open, tunnel.is_some())) => Some(ready),
                () = signals.next() => None,
            };
            let Ready { runner, me, person } = match ready {
                Some(Ok(ready)) => ready,
                Some(Err(failure)) => {
                    stack.stop().await;
                    return Err(failure);
                }
                None => {
                    stack.stop().await;
                    return Ok(DONE);
                }
            };
            let around = Around { client: once, notices: |notice| print::later(notice.to_string()) };
            let led = tunnel.map(|tunnel| tunnel.lead(me, makes_accounts, around));
            match person {
                Some(person) => {
                    let public = stack.for_others().iter().find(|address| address.starts_with("https://")).cloned();
                    person.attended(context, public, &mut signals).await;
                }
                None => signals.next().await,
            }
            if let Some(led) = led {
                led.end().await;
            }
            if let Some(runner) = runner {
                drain(runner, &mut signals).await?;
            }
            stop(stack, &mut signals).await
        }

        /// Refuses what cannot be meant. Returns which tasks the runner takes unless its configuration says so.
        fn checked(&self, context: &Context) -> Result<(Accept, Option<Kind>)> {
            let of = |typed: &Vec<String>| Kind::of(typed, self.public_url.as_ref(), &environment());
            let tunnel = self.tunnel.as_ref().map(of).transpose()?;
            // A public address may come from the environment, too.
            let is_public = tunnel.is_some() || self.public_url.is_some() || OF_ADDRESS.into_iter().any(is_set);
            if let Some(port) = self.proxy_port.filter(|_| !is_public) {
                return Err(Failure::message(format!(
                    "A proxy carries requests for the server's public address, which is not named. Type `ensemble up --public-url \
                     https://NAME --proxy-port {port}`."
                )));
            }
            let is_here = self.listen.ip().to_canonical().is_loopback();
            let is_trusting = ["TRUSTED_PROXIES", "EDGE_PROXY_TRUSTED_PROXIES"].into_iter().any(is_set);
            if is_trusting && is_here && self.tls_cert.is_none() {
                return Err(Failure::message(PROXY_ON_LOOPBACK));
            }
            let is_reached = is_public || !is_here;
            let unsigned = if is_reached { Accept::Signed } else { Accept::Any };
            if !self.no_runner && self.runner.for_check(context)?.accept == Some(Accept::Any) && is_reached {
                return Err(Failure::message(ACCEPTS_ANY));
            }
            if let Some(url) = &self.public_url {
                anonymous(url.clone())?;
            }
            Ok((unsigned, tunnel))
        }
    }

    /// What is there for the person.
    struct Ready {
        runner: Option<Running>,
        me: Account,
        person: Option<Person>,
    }

    /// How long the banner waits to know which agents work here.
    const LOOK: Duration = Duration::from_secs(5);

    /// Signs in the user of this machine, starts the runner, and prints what to do next.
    async fn set_up(
        context: &Context,
        (stack, data): (&Stack, &Path),
        wanted: Wanted,
        options: Option<(Options, Accept)>,
        (no_open, has_tunnel): (bool, bool),
    ) -> Result<Ready> {
        let server = stack.url();
        let Begun { me, .. } = context.begin(anonymous(server.to_owned())?, wanted).await?;
        crate::data::remember(context, &me, data)?;
        remove_left(context, &me).await;
        let (runner, agents) = match options {
            Some((options, unsigned)) => {
                let mut config = for_machine(&context.at(server), &me, &options).await?;
                // The server is this machine's own. Where others reach it, a token may be read on the way.
                config.accept.get_or_insert(unsigned);
                let ready = config.hosting.as_ref().map(|hosting| hosting.ready.clone());
                let runner = start_runner(config.clone());
                if let Some(ready) = ready {
                    // A session that is started at once finds its host.
                    let _ = tokio::time::timeout(LOOK, ready.notified()).await;
                }
                let found = if context.json { None } else { tokio::time::timeout(LOOK, offers(&config)).await.ok() };
                (Some(runner), Agents::of(found))
            }
            None => (None, Agents::NoRunner),
        };
        let default = offer_as_default(context, server).await?;
        if context.json {
            print::json(
                &serde_json::json!({
                    "url": server, "docs": format!("{server}/docs"), "userId": me.id, "forOthers": stack.for_others(),
                    "forProxy": stack.for_proxy(), "defaultServer": default,
                }),
                true,
            )?;
            return Ok(Ready { runner, me, person: None });
        }
        let person = Person::here(me.clone(), no_open).await;
        let others = if has_tunnel { &[] } else { stack.for_others() };
        banner((stack, data, others), &default, &agents, person.has_keys())?;
        Ok(Ready { runner, me, person: Some(person) })
    }

    /// Makes this server the one that commands use, unless the user has chosen another or another one on this machine
    /// is up. Returns the one that they use.
    async fn offer_as_default(context: &Context, server: &str) -> Result<String> {
        let (used, by) = context.server()?;
        let is_free = match by {
            ChosenBy::Default => true,
            ChosenBy::Up => is_same(&used, server) || !answers(&used).await,
            ChosenBy::Option | ChosenBy::Environment | ChosenBy::Login => false,
        };
        if is_free {
            context.home.change_settings(|settings| settings.local_server = Some(server.to_owned()))?;
            return Ok(server.to_owned());
        }
        Ok(used)
    }

    /// Unless directories are named, tasks may work in the current directory and in the home directory.
    fn here_and_home(options: Options) -> Options {
        if !options.is_without_roots() {
            return options;
        }
        let places = std::env::current_dir().ok().into_iter().chain(environment().remove("HOME").map(Into::into));
        places.fold(options, Options::with_root)
    }
}
