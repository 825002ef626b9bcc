//! What `ensemble up` prints when everything runs.

use std::path::Path;

use ensemble_all_in_one::Stack;

use crate::context::anonymous;
use crate::failure::Result;
use crate::print;

/// Whether an agent works here.
#[derive(Clone, Copy)]
pub(super) enum Agents {
    /// Or it is not known in time.
    Work,
    NoneWorks,
    NoRunner,
}

pub(super) fn banner((stack, data): (&Stack, &Path), default: &str, agents: Agents) -> Result<()> {
    let server = stack.url();
    let ensemble = if is_same(default, server) { "ensemble".to_owned() } else { format!("ensemble --server {server}") };
    print::line(format!("Ensemble is up at {server}"))?;
    print::line(format!("  its page: {server}"))?;
    print::line(format!("  its API and documentation: {server}/docs"))?;
    print::line(format!("  its data: {}", data.display()))?;
    for address in stack.for_others().iter().filter(|address| *address != server) {
        print::line(format!("  others reach it at {address}: `ensemble --server {address} login`"))?;
    }
    if let Some(address) = stack.for_proxy() {
        print::line(format!("  your proxy reaches it at {address}"))?;
    }
    if stack.for_others().iter().any(|address| address.starts_with("http://")) {
        print::line(
            "  Warning: this is plain HTTP. Others in the network can read tokens, prompts and output, and browsers on other\n  \
             machines show nothing. `ensemble phone` shows the ways to HTTPS.",
        )?;
    }
    print::line("\nIn another terminal:")?;
    print::line(format!("  {ensemble} open                                # this computer's browser"))?;
    print::line(format!(
        "  {ensemble} link                                # every other device: a phone, another computer"
    ))?;
    print::line(match agents {
        Agents::Work => format!(
            "  {ensemble} do \"What is this project?\"         # done by an agent in the directory where you type it"
        ),
        Agents::NoneWorks => {
            format!(
                "  {ensemble} doctor                              # no agent works here yet: says what is missing\n  \
                 {ensemble} demo                                # shows a session without one: no key, no network"
            )
        }
        Agents::NoRunner => {
            format!("  {ensemble} runner                              # lets agents work on this machine")
        }
    })?;
    print::line(format!(
        "  {ensemble} claude                              # a live session with an agent, on all your screens"
    ))?;
    print::line(format!(
        "  {ensemble} session create --title \"Hello\"      # encrypted before it leaves this machine"
    ))?;
    if matches!(agents, Agents::NoneWorks) {
        print::line("")?;
    } else {
        print::line(format!("  {ensemble} doctor                              # if something does not work\n"))?;
    }
    if ensemble != "ensemble" {
        print::line(format!(
            "Your default server is still {default}. `ensemble config server {server}` makes this one the default.\n"
        ))?;
    }
    print::line("Ctrl-C stops it.")
}

/// Whether both addresses lead to the same server on this machine.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    let origin = |address: &str| anonymous(address.to_owned()).ok().map(|client| client.origin().to_owned());
    let local = |address: &str| origin(address).map(|origin| origin.replace("://localhost", "://127.0.0.1"));
    local(a).is_some_and(|a| Some(a) == local(b))
}
