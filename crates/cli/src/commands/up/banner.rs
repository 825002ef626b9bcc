//! What `ensemble up` prints when everything runs.

use std::path::Path;

use ensemble_all_in_one::Stack;
use ensemble_runner::Offer;
use ensemble_types::runs::Provider;
use rustix::system::uname;

use crate::commands::open::has_display;
use crate::context::anonymous;
use crate::failure::Result;
use crate::print;

/// The agents that work here.
pub(super) enum Agents {
    Found(Vec<Provider>),
    /// Not in time.
    Unknown,
    NoRunner,
}

impl Agents {
    pub(super) fn of(found: Option<Vec<Offer>>) -> Self {
        found.map_or(Self::Unknown, |offers| {
            Self::Found(
                offers
                    .into_iter()
                    .filter(|offer| offer.program.is_ok() && offer.signed_in != Some(false))
                    .map(|offer| offer.provider)
                    .collect(),
            )
        })
    }

    /// The second step.
    fn step(&self, ensemble: &str) -> String {
        match self {
            Self::Found(found) => match found.first() {
                // Claude comes first where it is.
                Some(first) => {
                    let names: Vec<&str> = found.iter().map(Provider::as_str).collect();
                    format!("`{ensemble} {first}` in your project (works here: {})", names.join(", "))
                }
                None => format!(
                    "none works here yet: `{ensemble} doctor` says what is missing, `{ensemble} demo` shows a session without one"
                ),
            },
            Self::Unknown => format!("`{ensemble} claude` in your project"),
            Self::NoRunner => format!("`{ensemble} runner` lets agents work on this computer"),
        }
    }
}

/// `others`: where they reach the server. `has_keys`: `b` and `p` are read while it runs.
pub(super) fn banner(
    (stack, data, others): (&Stack, &Path, &[String]),
    default: &str,
    agents: &Agents,
    has_keys: bool,
) -> Result<()> {
    let server = stack.url();
    let ensemble = if is_same(default, server) { "ensemble".to_owned() } else { format!("ensemble --server {server}") };
    let pressed = |key: &str| if has_keys { format!("press {key}, or type ") } else { String::new() };
    print::line(format!("Ensemble is up at {server}\n"))?;
    print::line(format!("  1. A browser here   {}`{ensemble} open`", pressed("b")))?;
    if !has_display() {
        let port = server.rsplit(':').next().unwrap_or_default();
        print::line(format!(
            "                      There is none on this computer. At yours: `ssh -L {port}:127.0.0.1:{port} {}`, then {server} there,\n\
             \x20                     and `{ensemble} link` here",
            uname().nodename().to_string_lossy()
        ))?;
    }
    print::line(format!("  2. An agent         {}", agents.step(&ensemble)))?;
    print::line(format!("  3. Your phone       {}`{ensemble} phone`\n", pressed("p")))?;
    print::line(format!(
        "  `{ensemble} link` adds every other device, `{ensemble} doctor` says why something does not work"
    ))?;
    print::line(format!("  API and its documentation: {server}/docs"))?;
    print::line(format!("  data: {}", data.display()))?;
    for address in others.iter().filter(|address| *address != server) {
        print::line(format!("  others reach it at {address}: `ensemble --server {address} login`"))?;
    }
    if let Some(address) = stack.for_proxy().filter(|_| !others.is_empty()) {
        print::line(format!("  your proxy reaches it at {address}"))?;
    }
    if others.iter().any(|address| address.starts_with("http://")) {
        print::line(
            "  Warning: this is plain HTTP. Others in the network can read tokens, prompts and output, and browsers on other\n  \
             machines show nothing. `ensemble phone` shows the ways to HTTPS.",
        )?;
    }
    if ensemble != "ensemble" {
        print::line(format!(
            "  Your default server is still {default}. `ensemble config server {server}` makes this one the default."
        ))?;
    }
    print::line(if has_keys { "" } else { "\nCtrl-C stops it." })
}

/// Whether both addresses lead to the same server on this machine.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    let origin = |address: &str| anonymous(address.to_owned()).ok().map(|client| client.origin().to_owned());
    let local = |address: &str| origin(address).map(|origin| origin.replace("://localhost", "://127.0.0.1"));
    local(a).is_some_and(|a| Some(a) == local(b))
}
