//! `ensemble devices`: shows the devices of the account, and removes one.

mod its_machines;
pub(super) mod renaming;

use std::time::Duration;

use clap::{Args, Subcommand};
use ensemble_account::devices::{Own, change};
use ensemble_account::kept_lists;
use ensemble_account::names::{self, next_list};
use ensemble_account::pins::Shared;
use ensemble_account::{Account, removal};
use ensemble_types::devices::{Device, ListedDevice, Role};
use ensemble_types::refs::Ref;
use ensemble_types::sessions::Session;

use self::its_machines::{await_machines, machines_of, show_machines};
use super::DONE;
use super::link::{check_primary, described};
use super::recovery::begin_epoch;
use crate::confirm;
use crate::context::{Context, now};
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::print;
use crate::says;
use crate::styled::Tone;
use crate::table::{Column, Table};
use crate::when;

/// Services learn of a removal within 10 s.
const SETTLED: Duration = Duration::from_secs(12);

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
                renaming::rename(context, &me, &device, &name).await?;
            }
        }
        Ok(DONE)
    }
}

async fn list(context: &Context, me: &Account) -> Result<()> {
    let devices = listed(context, me).await?;
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
    table.print()
}

/// When a device was there last. The server notes it to the minute, so it may be before the device was added; and this one is here.
fn last_seen(device: &Device) -> String {
    if device.current {
        return "now".to_owned();
    }
    device.last_seen_at.map(|at| when::ago(at.max(device.created_at))).unwrap_or_default()
}

/// The devices that the checked list has, with their names in it. What the server says of them else is shown, and not relied on.
async fn listed(context: &Context, me: &Account) -> Result<Vec<Device>> {
    let mut devices = me.client.devices().await?.devices;
    let own = me.own();
    let names = names::given(&context.home, (me.client.origin(), me.id), &own.list, &devices)?;
    let is_listed = |device: &Device| {
        let entry = own.list.device(&device.public_key);
        entry.is_some_and(|entry| entry.role == device.role && entry.box_key == device.box_key)
    };
    if devices.len() != own.list.body().devices.len() || !devices.iter().all(is_listed) {
        return Err(Failure::message(
            "The server shows other devices than the list that you signed. Run the command again; if it stays so, do not \
             trust this server.",
        ));
    }
    for device in &mut devices {
        device.name = names.get(&device.public_key).map(str::to_owned);
        device.machine_id = own.list.device(&device.public_key).and_then(|entry| entry.machine_id.clone());
    }
    Ok(devices)
}

/// Whether the list has a name for the device.
fn is_named(me: &Account, device: &Device) -> bool {
    me.own().list.device(&device.public_key).is_some_and(|entry| entry.name.is_some())
}

async fn find(context: &Context, me: &Account, named: &str) -> Result<Device> {
    let devices = listed(context, me).await?;
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

async fn remove(
    context: &Context,
    me: &Account,
    named: &str,
    yes: bool,
    (keep_machines, keep_rights): (bool, bool),
) -> Result<()> {
    check_primary(me)?;
    let device = find(context, me, named).await?;
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
    let mut next = me.own().list.successor(now());
    let is_gone = |entry: &ListedDevice| entry.machine_id.as_ref().is_some_and(|id| gone.contains(id));
    next.devices.retain(|entry| entry.key != device.public_key && !is_gone(entry));
    let mut contents = me.own().contents.clone();
    if device.role != Role::Machine {
        contents = begin_epoch(&mut next, &contents)?;
    }
    let (list, names) = next_list(&me.own().list, next, me.names().await?, &me.key)?;
    // What it has written last is read before it is removed: nobody relies on its signature afterwards.
    let shared = me.shared_state().await.unwrap_or_else(|error| {
        // A device that is to be removed could make it unreadable.
        print::note(format!("{} They begin with an empty one.", says::error(&error)));
        Shared::default()
    });
    me.see_all_titles().await;
    let _lock = context.home.lock_removal().await?;
    context.home.change_settings(|settings| {
        let kept = settings.keep_rights.entry(me.client.origin().to_owned()).or_default();
        match keep_rights {
            true => drop(kept.insert(device.public_key.clone(), list.digest_text())),
            false => drop(kept.remove(&device.public_key)),
        }
    })?;
    removal::begin_removal(&context.home, me.client.origin(), list.version())?;
    let change = change(&list, &contents, [], names)?;
    kept_lists::send(&context.home, &me.client, (&me.key, me.id), &list, (&change, Vec::new())).await?;
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
    // With the content keys of the new epoch.
    let me = Account::new(&context.home, me.client.clone(), me.key.clone(), me.id, Own { list, contents });
    if let Err(error) = me.keep_state(&shared).await {
        print::note(format!("What your devices share was not kept: {}", says::error(&error)));
    }
    let ((), unconfirmed) = tokio::join!(settle(), await_machines(&me, &machines, &name));
    let removal::Finished { rekeyed: changed, rights, foreign } = me.finish_removal().await?;
    let waiting = others_sessions(&foreign);
    if context.json {
        let removed = serde_json::json!({
            "removed": device.public_key, "rekeyed": changed, "sharedWithYou": waiting, "unconfirmed": unconfirmed,
            "rights": rights,
        });
        return print::json(&removed, false);
    }
    print::line(format!(
        "{changed} sessions have a new key. Older ones get theirs before their next message. A public link keeps its old key: \
         replace it with `ensemble share link`."
    ))
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

/// Waits until every service has learnt of a removal. Until then a removed device can still change what it could change.
pub(crate) async fn settle() {
    print::note("Waiting until no service accepts its tokens any more (12 s).");
    tokio::time::sleep(SETTLED).await;
}
