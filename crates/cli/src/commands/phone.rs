//! `ensemble phone`: from a server on this machine to its page on a phone. Browsers have cryptography at `https://` only, so it names the ways
//! to get there, checks the resulting address, and shows the code of `ensemble link` for it.

use std::pin::pin;

use clap::Args;
use ensemble_account::Account;
use ensemble_computer::{PROXY_PORT, program, reach, tailscale};
use ensemble_screen::Keys;

use super::DONE;
use super::link::{Digits, Link, show};
use crate::context::{Context, interrupted, once};
use crate::environment::environment;
use crate::failure::{Failure, Result};
use crate::{foot, print};

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
        let (me, keys) = (context.me().await?, Keys::here(foot::redraw));
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
                None => match tailscale::serves(here, &environment()).await {
                    Some(url) => url,
                    None => return ways(here).map(|()| None),
                },
            };
            Ok(Some(reach::check(me, once(url)?).await?))
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

/// The ways to https, those whose programs are here first.
fn ways(server: &str) -> Result<()> {
    let environment = environment();
    let is_there = |name| program(name, &environment).is_ok();
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
