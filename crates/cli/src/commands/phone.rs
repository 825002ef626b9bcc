//! `ensemble phone`: from a server on this machine to its page on a phone. Browsers have cryptography at `https://` only, so it names the ways
//! to get there, checks the resulting address, and shows the code of `ensemble link` for it.

use std::path::PathBuf;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use ensemble_account::Account;
use ensemble_client::{Client, Credential, Error};
use ensemble_types::problem::Code;
use serde::Deserialize;
use tokio::process::Command;

use super::DONE;
use super::link::{Digits, Link, show};
use crate::context::{Context, anonymous, interrupted, once};
use crate::failure::{Failure, Result, is_loopback};
use crate::keys::Keys;
use crate::print;

/// A program that shows its state answers within this time.
const SHOWS_WITHIN: Duration = Duration::from_secs(10);
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// The port to which a proxy on this machine leads in what is shown (`ensemble up --proxy-port`): there the visitors that it carries
/// have limits of their own.
const PROXY_PORT: &str = "8088";

/// Brings the page to a phone: says how to reach this server by https, checks the address, and shows a code that the phone scans to
/// become a device of your account.
#[derive(Debug, Args)]
pub(crate) struct Phone {
    /// The address at which the phone is to reach the server, as in https://ensemble.example.com
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Check the address, and add no device
    #[arg(long)]
    check: bool,
}

impl Phone {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let (me, keys) = (context.me().await?, Keys::here());
        self.shown(context, &me, Digits::of(keys.as_ref()), interrupted()?).await
    }

    /// The same for a program that is the server: `url` is where others reach it.
    #[cfg(feature = "up")]
    pub(crate) fn at(url: Option<String>) -> Self {
        Self { url, check: false }
    }

    pub(crate) async fn shown(
        self,
        context: &Context,
        me: &Account,
        digits: Digits<'_>,
        left: impl Future<Output = ()>,
    ) -> Result {
        let mut left = pin!(left);
        let here = me.client.origin();
        let checked = async {
            let url = match self.url {
                Some(url) => url,
                None if here.starts_with("https://") => here.to_owned(),
                None => match served_by_tailscale(here).await {
                    Some(url) => url,
                    None => return ways(here).map(|()| None),
                },
            };
            check(me, &url).await.map(Some)
        };
        let checked = tokio::select! {
            checked = checked => checked?,
            () = left.as_mut() => return Err(Failure::message("The address was not checked.")),
        };
        let Some(client) = checked else { return Ok(DONE) };
        print::line(format!("{} is this server, by https, and accepts sign-ins there.", client.origin()))?;
        if self.check {
            return Ok(DONE);
        }
        print::line("Scan the code with the phone's camera. The phone becomes a device of your account.\n")?;
        let show = |code: &_| show(context, me, digits, code);
        Link::for_browser().shown_by(context, me, client.origin(), show, digits, left).await
    }
}

/// Whether a phone can use the server at this address: https with a certificate that browsers trust, this very server, and sign-ins there.
pub(crate) async fn check(me: &Account, url: &str) -> Result<Client> {
    let client = anonymous(url.to_owned())?;
    let origin = client.origin().to_owned();
    if !origin.starts_with("https://") && !is_loopback(&origin) {
        return Err(Failure::message(format!(
            "{origin} is not https, and a browser has no cryptography there. `ensemble phone` without an address shows the ways to https."
        )));
    }
    let client = once(url.to_owned())?;
    let late = || Failure::message(format!("{origin} did not answer within {} s.", ANSWERS_WITHIN.as_secs()));
    let version = tokio::time::timeout(ANSWERS_WITHIN, client.version()).await.map_err(|_| late())?;
    version.map_err(|error| {
        if error.is(Code::MisdirectedRequest) { unknown(&origin, &error) } else { unreached(&origin, &error) }
    })?;
    let signed_in = client.with_credential(Credential::Device(me.key.clone()));
    let token = tokio::time::timeout(ANSWERS_WITHIN, signed_in.sign_in()).await.map_err(|_| late())?;
    match token {
        Ok(token) if token.user_id == me.id => Ok(signed_in),
        Ok(_) => Err(other(&origin, me)),
        Err(error) if error.is(Code::UserNotFound) => Err(other(&origin, me)),
        Err(error @ (Error::Problem(_) | Error::WrongOrigin { .. })) => Err(unknown(&origin, &error)),
        Err(error) => Err(unreached(&origin, &error)),
    }
}

fn other(origin: &str, me: &Account) -> Failure {
    Failure::message(format!(
        "{origin} is another server than {}: it does not have your account. Nothing was sent to it but a signature for its own address.",
        me.client.origin()
    ))
}

/// The server does not know that it is reached at this address.
fn unknown(origin: &str, error: &Error) -> Failure {
    Failure::message(format!(
        "{origin} answers, and takes no sign-ins for this address: {}. Start the server with its address: `ensemble up \
         --public-url {origin}`, or PUBLIC_BASE_URL={origin}.",
        error.to_string().trim_end_matches('.')
    ))
}

fn unreached(origin: &str, error: &Error) -> Failure {
    let causes: Vec<String> = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source())
        .map(ToString::to_string)
        .collect();
    let why = causes.join(": ");
    let advice = if why.contains("ertificate") {
        "A phone would refuse this certificate, too: it must be of an authority that browsers know, for this name, and not expired."
    } else {
        "Is the way that leads there still running? `ensemble phone` without an address shows the ways."
    };
    Failure::message(format!("{origin} cannot be used: {why}. {advice}"))
}

/// What `tailscale status --json` says of this machine.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Status {
    #[serde(rename = "Self")]
    this: Machine,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Machine {
    #[serde(rename = "DNSName")]
    dns_name: String,
}

/// The address at which Tailscale serves this server already, if it does.
async fn served_by_tailscale(server: &str) -> Option<String> {
    let serves = printed("tailscale", &["serve", "status", "--json"]).await?;
    let ports = [server.rsplit(':').next()?, PROXY_PORT];
    ports.iter().any(|port| serves.contains(&format!(":{port}\""))).then_some(())?;
    tailnet_name().await
}

async fn tailnet_name() -> Option<String> {
    let status: Status = serde_json::from_str(&printed("tailscale", &["status", "--json"]).await?).ok()?;
    let name = status.this.dns_name.trim_end_matches('.').to_owned();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
    is_name.then(|| format!("https://{name}"))
}

/// What a program prints, if it is there and succeeds in time.
async fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(SHOWS_WITHIN, command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder: PathBuf| folder.join(program).is_file())
}

/// The ways to https, those whose programs are here first.
fn ways(server: &str) -> Result<()> {
    let mut ways = [
        (
            is_there("tailscale"),
            "Tailscale, for the devices of your own network",
            format!("tailscale serve --bg {PROXY_PORT}"),
            "It prints the address, https://NAME.ts.net.",
        ),
        (
            is_there("cloudflared"),
            "A tunnel of Cloudflare, for everyone who knows the address",
            format!("cloudflared tunnel --url http://127.0.0.1:{PROXY_PORT}"),
            "It prints the address, which is a new one each time.",
        ),
        (
            is_there("caddy"),
            "Caddy, with a domain that leads to this machine",
            format!("caddy reverse-proxy --from NAME --to 127.0.0.1:{PROXY_PORT}"),
            "It gets a certificate for the domain by itself.",
        ),
    ];
    ways.sort_by_key(|(is_here, ..)| !is_here);
    print::line(format!(
        "A phone needs https, and {server} is plain HTTP. `ensemble up --tunnel` does all of it with Tailscale or cloudflared.\n\n\
         By hand, first one of these, which leads an address to port {PROXY_PORT} of this computer:\n"
    ))?;
    for (number, (is_here, name, command, note)) in ways.iter().enumerate() {
        let here = if *is_here { " (installed here)" } else { "" };
        print::line(format!("  {}. {name}{here}\n       {command}\n     {note}\n", number + 1))?;
    }
    print::line(format!(
        "Then the server, with that address and that port:\n\n       ensemble up --public-url https://NAME --proxy-port {PROXY_PORT}\n\n\
         Or, without a proxy, with a certificate of your own (PEM files; a new one is used within a minute):\n\n       \
         ensemble up --public-url https://NAME:8443 --tls-cert FILE --tls-key FILE\n\n\
         `ensemble phone https://NAME` checks the address then, and shows the code for the phone."
    ))
}
