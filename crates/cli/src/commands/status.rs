//! `ensemble status`: the server, the account, this machine and the unfinished runs, on one screen.

use std::process::ExitCode;

use clap::Args;
use ensemble_account::confirmations;
use ensemble_account::fingerprint;
use ensemble_account::settings::KnownAccount;
use ensemble_client::{Client, Version};
use ensemble_types::accounts::Account;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::Machine;
use ensemble_types::runs::Run;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;

use super::DONE;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::machines::{Machines, runner};
use crate::print;

/// How many unfinished runs are shown.
const RUNS: usize = 10;

/// Shows the server, your account, this machine and your unfinished runs. The exit code is 1 when the server cannot be
/// reached or you are not signed in.
#[derive(Debug, Args)]
pub(crate) struct Status {}

/// What the server knows about a user who is signed in.
struct Signed {
    account: Account,
    machine: Option<Machine>,
    runs: Vec<Run>,
    /// The names of machines that have not confirmed the removal of a device.
    unconfirmed: Vec<String>,
    /// Only recovery words were replaced.
    is_of_words: bool,
}

impl Status {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let (client, account) = context.account()?;
        let id = context.home.settings()?.machine(client.origin()).cloned();
        let version = client.version().await.map_err(Failure::from);
        let signed = match (&version, account.as_ref().is_some_and(|account| account.signed_in)) {
            (Ok(_), true) => Some(signed(context, id.as_ref()).await),
            _ => None,
        };
        let is_well = matches!(signed, Some(Ok(_)));
        if context.json {
            let fingerprint = account.as_ref().and_then(|account| of_account(context, &client, account));
            as_json(&client, &version, account.as_ref(), (signed.as_ref(), fingerprint))?;
        } else {
            show_server(&client, &version)?;
            show_account(context, &client, account.as_ref(), signed.as_ref())?;
            if let Some(Ok(signed)) = &signed {
                show_machine(id.as_ref(), signed.machine.as_ref())?;
                show_unconfirmed(&signed.unconfirmed, signed.is_of_words)?;
                show_runs(&signed.runs)?;
            }
        }
        Ok(if is_well { DONE } else { ExitCode::FAILURE })
    }
}

async fn signed(context: &Context, machine: Option<&MachineId>) -> Result<Signed> {
    let me = context.me().await?;
    let client = &me.client;
    let machine = match machine {
        Some(id) => match client.machine(id).await {
            Err(error) if error.is_not_found() => None,
            machine => Some(machine?),
        },
        None => None,
    };
    let runs = client.runs(Some("active".to_owned())).take(RUNS).try_collect().await?;
    let list = &me.own().list;
    let unconfirmed = confirmations::unconfirmed(&me).await.unwrap_or_else(|_| confirmations::unknown(list));
    let is_of_words = list.removal().is_some_and(|removal| removal.is_of_words);
    let machines = if unconfirmed.is_empty() { Machines::default() } else { Machines::if_available(&me).await };
    let unconfirmed = unconfirmed.iter().map(|open| machines.called(&open.id)).collect();
    Ok(Signed { account: client.account().await?, machine, runs, unconfirmed, is_of_words })
}

fn as_json(
    client: &Client,
    version: &Result<Version>,
    account: Option<&KnownAccount>,
    (signed, fingerprint): (Option<&Result<Signed>>, Option<String>),
) -> Result<()> {
    let text = |failure: &Failure| failure.to_string();
    let known = signed.and_then(|signed| signed.as_ref().ok());
    let machine = known.and_then(|signed| signed.machine.as_ref()).map(|machine| {
        json!({ "id": machine.id, "online": machine.online, "lastActiveAt": machine.last_active_at, "runner": runner(machine) })
    });
    print::json(
        &json!({
            "server": {
                "url": client.base().as_str().trim_end_matches('/'),
                "reachable": version.is_ok(),
                "version": version.as_ref().ok().map(|version| &version.version),
                "error": version.as_ref().err().map(text),
            },
            "account": {
                "signedIn": account.is_some_and(|account| account.signed_in),
                "id": account.map(|account| account.user_id),
                "displayName": known.and_then(|signed| signed.account.display_name.as_ref()),
                "fingerprint": fingerprint,
                "error": signed.and_then(|signed| signed.as_ref().err()).map(text),
            },
            "machine": machine,
            "unconfirmed": known.map(|signed| &signed.unconfirmed),
            "runs": known.map(|signed| &signed.runs),
        }),
        false,
    )
}

fn show_unconfirmed(names: &[String], is_of_words: bool) -> Result<()> {
    let (has, it) = if names.len() == 1 { ("has", "it") } else { ("have", "them") };
    let (what, who) = match is_of_words {
        true => ("your old recovery words no longer work", "has those words"),
        false => ("a device was removed", "has that device"),
    };
    if names.is_empty() {
        return Ok(());
    }
    print::line(format!("removed      {} {has} not confirmed that {what}.", names.join(", ")))?;
    print::line(format!("             Until then, anyone who {who} and controls the server can command {it}."))
}

fn show_server(client: &Client, version: &Result<Version>) -> Result<()> {
    let server = client.base().as_str().trim_end_matches('/');
    match version {
        Ok(version) => print::line(format!("server       {server} (version {})", version.version)),
        Err(failure) => print::line(format!("server       {server}, not reachable\n             {failure}")),
    }
}

/// The fingerprint of the account key, which on a device that was linked is not the device's own.
fn of_account(context: &Context, client: &Client, account: &KnownAccount) -> Option<String> {
    let user = account.user_id;
    let list = context.home.place(client.origin(), user).and_then(|place| context.home.known_list(&place, user));
    let list = list.ok().flatten();
    let key = list.map_or_else(|| account.public_key.clone(), |list| list.body().account.clone());
    fingerprint(&key).ok()
}

fn show_account(
    context: &Context,
    client: &Client,
    account: Option<&KnownAccount>,
    signed: Option<&Result<Signed>>,
) -> Result<()> {
    let Some(account) = account.filter(|account| account.signed_in) else {
        if let Some(linked) = context.linked_machine()? {
            let machine = linked.machine;
            print::line(format!("account      {}, whose machine this is; its key is elsewhere", machine.owner))?;
            return print::line(format!("machine      {}; `ensemble runner` runs its tasks", machine.machine));
        }
        return print::line(format!("account      not signed in; run `{}`", context.typed("login")));
    };
    let name = match signed {
        Some(Ok(Signed { account: Account { display_name: Some(name), .. }, .. })) => {
            format!("{}, ", print::inline(name))
        }
        _ => String::new(),
    };
    print::line(format!("account      {name}{}", account.user_id))?;
    if let Some(fingerprint) = of_account(context, client, account) {
        print::line(format!("fingerprint  {fingerprint}"))?;
    }
    if let Some(Err(failure)) = signed {
        print::line(format!("             {failure}"))?;
    }
    Ok(())
}

fn show_machine(id: Option<&MachineId>, machine: Option<&Machine>) -> Result<()> {
    let (Some(id), Some(machine)) = (id, machine) else {
        return print::line("machine      not registered; `ensemble runner` registers it and runs tasks");
    };
    let Some(runner) = runner(machine) else {
        let state = if machine.online { "online" } else { "no runner online; start `ensemble runner`" };
        return print::line(format!("machine      {id}, {state}"));
    };
    let drains = if runner.draining { ", drains" } else { "" };
    print::line(format!(
        "machine      {id}, runner online{drains}, {} of {} tasks running",
        runner.running, runner.capacity
    ))?;
    for provider in &runner.providers {
        let provider_name = print::inline(&provider.provider);
        match &provider.reason {
            Some(reason) if !provider.offered => {
                print::line(format!("             ✗ {provider_name:7} {}", print::short(reason, 90)))?
            }
            _ => {
                let version = print::inline(provider.version.as_deref().unwrap_or_default());
                print::line(format!("             ✓ {provider_name:7} {version}").trim_end())?;
            }
        }
    }
    Ok(())
}

fn show_runs(runs: &[Run]) -> Result<()> {
    if runs.is_empty() {
        return print::line("runs         none unfinished");
    }
    let count = if runs.len() == RUNS { format!("{RUNS} or more") } else { runs.len().to_string() };
    print::line(format!("runs         {count} unfinished"))?;
    for run in runs {
        let (done, all) = (run.summary.completed, run.summary.total);
        let title = print::short(run.title.as_deref().unwrap_or_default(), 40);
        let line = format!("  {}  {:9}  {done}/{all}  {}", run.reference, run.status.as_str(), print::inline(&title));
        print::line(line.trim_end())?;
    }
    Ok(())
}
