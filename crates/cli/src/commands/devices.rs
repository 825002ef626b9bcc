//! `ensemble devices`: shows the devices of the account, and removes one.

mod its_machines;

use clap::{Args, Subcommand};
use ensemble_account::Account;
use ensemble_account::removal::Finished;
use ensemble_screen::lines::{Column, Table, Tone};
use ensemble_types::devices::{Device, Role};
use ensemble_types::refs::Ref;
use ensemble_types::sessions::Session;

use self::its_machines::{await_machines, machines_of, show_machines};
use super::DONE;
use super::link::described;
use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::print;
use crate::when;

/// Shows the devices of your account; removes or renames one.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Devices {
    #[command(subcommand)]
    change: Option<Change>,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Remove a device: it can no longer sign in, and reads nothing that is written from now on
    #[command(visible_alias = "rm")]
    Remove {
        /// The device's name, or the first eight or more characters of its key
        // A key can begin with a hyphen.
        #[arg(allow_hyphen_values = true)]
        device: String,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        /// Keep the machines that were registered on the same computer. They are removed otherwise
        #[arg(long)]
        keep_machines: bool,
        /// Keep what the device has shared, and what it has let people do in your live sessions. It is taken back otherwise. Not for a
        /// device that is in other hands
        #[arg(long)]
        keep_rights: bool,
    },
    /// Name a device. Only a primary device can. A machine is named with `ensemble machine rename`
    Rename {
        /// The device's name, or the first eight or more characters of its key
        // A key can begin with a hyphen.
        #[arg(allow_hyphen_values = true)]
        device: String,
        /// At most 64 bytes. Only your own devices see it
        name: String,
    },
}

impl Devices {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        match self.change {
            None => list(context, &me).await?,
            Some(Change::Remove { device, yes, keep_machines, keep_rights }) => {
                remove(context, &me, &device, yes, (keep_machines, keep_rights)).await?;
            }
            Some(Change::Rename { device, name }) => {
                rename(context, &me, &device, &name).await?;
            }
        }
        Ok(DONE)
    }
}

async fn list(context: &Context, me: &Account) -> Result<()> {
    let devices = me.devices().await?;
    if context.json {
        let (version, digest) = (me.own().list.version(), me.own().list.digest_text());
        return print::json(&serde_json::json!({ "devices": devices, "version": version, "digest": digest }), false);
    }
    let mut table = Table::new([
        Column::text("NAME", 1, 8),
        Column::fixed("ROLE", 0),
        Column::fixed("KEY", 0),
        Column::fixed("KIND", 4),
        Column::fixed("ADDED", 5),
        Column::fixed("LAST SEEN", 3),
        Column::fixed("", 2),
    ]);
    for device in &devices {
        let has_other = device.name.is_none() && is_named(me, device);
        let name = if has_other { "the server gives another name" } else { device.name.as_deref().unwrap_or_default() };
        table.row([
            (if has_other { Tone::Dim } else { Tone::Plain }, name.to_owned()),
            (Tone::Plain, device.role.as_str().to_owned()),
            (Tone::Plain, device.public_key.chars().take(8).collect()),
            (Tone::Plain, device.kind.as_str().to_owned()),
            (Tone::Plain, when::ago(device.created_at)),
            (Tone::Plain, last_seen(device)),
            (Tone::Dim, if device.current { "this device" } else { "" }.to_owned()),
        ]);
    }
    print::table(&table)
}

/// When a device was there last. The server notes it to the minute, so it may be before the device was added; and this one is here.
fn last_seen(device: &Device) -> String {
    if device.current {
        return "now".to_owned();
    }
    device.last_seen_at.map(|at| when::ago(at.max(device.created_at))).unwrap_or_default()
}

/// Whether the list has a name for the device.
fn is_named(me: &Account, device: &Device) -> bool {
    me.own().list.device(&device.public_key).is_some_and(|entry| entry.name.is_some())
}

async fn find(me: &Account, named: &str) -> Result<Device> {
    let devices = me.devices().await?;
    let is_meant = |device: &&Device| {
        device.name.as_ref().is_some_and(|name| name.to_lowercase() == named.to_lowercase())
            || (named.len() >= 8 && device.public_key.starts_with(named))
    };
    let mut found = devices.iter().filter(is_meant);
    match (found.next(), found.next()) {
        (Some(device), None) => Ok(device.clone()),
        (None, _) => {
            let names: Vec<_> = devices.iter().map(called).collect();
            Err(Failure::message(format!("You have no device {named}. You have: {}.", names.join(", "))))
        }
        _ => Err(Failure::message(format!(
            "Several devices are called {named}. Give the key of one, as `ensemble devices` shows it."
        ))),
    }
}

fn called(device: &Device) -> String {
    let key: String = device.public_key.chars().take(8).collect();
    match &device.name {
        Some(name) => format!("{name} ({key})"),
        None => key,
    }
}

/// Renames a device: the next list has another name for it.
async fn rename(context: &Context, me: &Account, named: &str, name: &str) -> Result<()> {
    me.check_primary()?;
    let mut device = find(me, named).await?;
    match device.role {
        Role::Machine => return Err(Failure::message("This is a machine. Rename it with `ensemble machine rename`.")),
        Role::Recovery => {
            return Err(Failure::message("Recovery words have no name. Choose a device from `ensemble devices`."));
        }
        Role::Primary | Role::Linked => {}
    }
    device.name = Some(me.rename_device(&device.public_key, name).await?);
    if context.json {
        return print::json(&device, false);
    }
    print::line(format!("The device is called {}.", called(&device)))
}

async fn remove(
    context: &Context,
    me: &Account,
    named: &str,
    yes: bool,
    (keep_machines, keep_rights): (bool, bool),
) -> Result<()> {
    me.check_primary()?;
    let device = find(me, named).await?;
    let name = called(&device);
    if device.public_key == me.key.public_key() {
        return Err(Failure::message(
            "This is the device that you use. Remove it on another primary device of your account.",
        ));
    }
    let machines = Machines::load(me).await?;
    let gone = machines_of(me, &device, &machines, keep_machines);
    show_machines(&machines, &gone);
    if !yes {
        // One question: nothing waits for another answer once the person has said that the device is lost.
        let named: Vec<String> =
            gone.iter().map(|id| format!(", and the machine {} on it", machines.called(id))).collect();
        confirm::deletion(&format!("{name}, {}, from your account{}", described(device.kind), named.concat()))?;
    }
    let removed = me.remove_device(&device, &gone, keep_rights).await?;
    print::note(format!("{name} is removed. It cannot sign in any more."));
    for id in &gone {
        match me.client.delete_machine(id).await {
            Err(error) if !error.is_not_found() => {
                let advice = format!("`ensemble machine delete {id}` tries again");
                print::note(format!(
                    "The machine {} is not deleted: {}. {advice}.",
                    machines.called(id),
                    Failure::from(error)
                ));
            }
            _ => print::note(format!("The machine {} is deleted.", machines.called(id))),
        }
    }
    removed.keep_state().await;
    let ((), unconfirmed) = tokio::join!(me.settle(), await_machines(me, &machines, &name));
    let Finished { rekeyed: changed, rights, shares, foreign, unread } = removed.finish().await?;
    let waiting = others_sessions(&foreign);
    if context.json {
        let removed = serde_json::json!({
            "removed": device.public_key, "rekeyed": changed, "sharedWithYou": waiting, "unconfirmed": unconfirmed,
            "rights": rights, "shares": shares,
        });
        print::json(&removed, false)?;
    } else {
        print::line(format!(
            "{changed} sessions have a new key. Older ones get theirs before their next message. A public link keeps its old key: \
             replace it with `ensemble share link`."
        ))?;
    }
    unread.map_or(Ok(()), |why| Err(why.into()))
}

/// The refs of sessions of other people. What is written there can be read by a removed device until their owners' programs give
/// them a new key, if the server lets it have that.
fn others_sessions(foreign: &[Session]) -> Vec<Ref> {
    let refs: Vec<Ref> = foreign.iter().map(|session| session.reference).collect();
    if !refs.is_empty() {
        let named: Vec<String> = refs.iter().take(20).map(Ref::to_string).collect();
        print::note(format!(
            "{} sessions are shared with you: {}. They get a new key from their owners' programs when those write to them next. Until \
             then the removed device could read them, if the server let it, and you cannot write there.",
            refs.len(),
            named.join(", ")
        ));
    }
    refs
}
