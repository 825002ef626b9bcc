//! `ensemble devices`: shows the devices of the account, and removes one.

mod its_machines;
pub(super) mod renaming;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, Subcommand};
use ensemble_client::{Client, SessionFilter};
use ensemble_types::devices::{Device, ListedDevice, Role};
use ensemble_types::refs::Ref;
use ensemble_types::sessions::{AccessLevel, Session};
use futures_util::{StreamExt, TryStreamExt};

use self::its_machines::{await_machines, machines_of, show_machines};
use super::DONE;
use super::link::{check_primary, described};
use super::recovery::begin_epoch;
use crate::confirm;
use crate::context::{Context, Me, now};
use crate::devices::{Own, change};
use crate::failure::{Failure, Result};
use crate::kept_lists;
use crate::live::rights::{Given, settle_rights};
use crate::machines::Machines;
use crate::names::{self, next_list};
use crate::pins::Shared;
use crate::print;
use crate::seen_titles::MOST_KEPT;
use crate::sharing::Members;
use crate::styled::Tone;
use crate::table::{Column, Table};
use crate::when;

/// Sessions that were written to in so many days get a new key at once, all others before their next message.
const RECENT_DAYS: u64 = 7;
/// Sessions that get a new key at once, the newest first. All others get theirs before their next message.
const MOST_AT_ONCE: usize = 200;
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

async fn list(context: &Context, me: &Me) -> Result<()> {
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
async fn listed(context: &Context, me: &Me) -> Result<Vec<Device>> {
    let mut devices = me.client.devices().await?.devices;
    let own = me.own();
    let names = names::given(context, (me.client.origin(), me.id), &own.list, &devices)?;
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
fn is_named(me: &Me, device: &Device) -> bool {
    me.own().list.device(&device.public_key).is_some_and(|entry| entry.name.is_some())
}

async fn find(context: &Context, me: &Me, named: &str) -> Result<Device> {
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
    me: &Me,
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
    let machines = Machines::load(context, me).await?;
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
    let (list, names) = next_list(&me.own().list, next, me.names(context).await?, &me.key)?;
    // What it has written last is read before it is removed: nobody relies on its signature afterwards.
    let shared = me.shared_state(context).await.unwrap_or_else(|failure| {
        // A device that is to be removed could make it unreadable.
        print::note(format!("{failure} They begin with an empty one."));
        Shared::default()
    });
    see_titles(context, me).await;
    let _lock = context.home.lock_removal().await?;
    context.home.change_settings(|settings| {
        let kept = settings.kept_rights.entry(me.client.origin().to_owned()).or_default();
        let _ = if keep_rights { kept.insert(device.public_key.clone()) } else { kept.remove(&device.public_key) };
    })?;
    begin_removal(context, &me.client, list.version())?;
    let change = change(&list, &contents, [], names)?;
    kept_lists::send(context, &me.client, (&me.key, me.id), &list, (&change, Vec::new())).await?;
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
    let me = Me::new(me.client.clone(), me.key.clone(), me.id, Own { list, contents });
    if let Err(failure) = me.keep_state(context, &shared).await {
        print::note(format!("What your devices share was not kept: {failure}"));
    }
    let ((), unconfirmed) = tokio::join!(settle(), await_machines(&me, &machines, &name));
    let Finished { rekeyed: changed, rights, foreign } = finish_removal(context, &me).await?;
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

/// Judges the titles of the own sessions by the list that `me` has, before a device or a machine in it is removed or right after. A title
/// that it has given counts afterwards only where that was seen.
pub(crate) async fn see_titles(context: &Context, me: &Me) {
    let filter = SessionFilter { active_only: false, shared: false };
    let sessions = me.client.sessions(filter).take(MOST_KEPT).try_collect::<Vec<Session>>().await;
    let seen = match sessions {
        Ok(sessions) => me.see_titles(context, &sessions).await,
        Err(error) => Err(error.into()),
    };
    if let Err(failure) = seen {
        print::note(format!("Sessions may lose the titles that were given there: {failure}"));
    }
}

/// The result of finishing a removal.
pub(crate) struct Finished {
    /// How many sessions got a new key.
    pub(crate) rekeyed: usize,
    /// The rights that removed devices had given people.
    pub(crate) rights: Vec<Given>,
    /// Other people's sessions, to which only their owners can give new keys.
    pub(crate) foreign: Vec<Session>,
}

/// Gives the sessions that are in use new keys. Takes back the rights that removed devices have given there, or keeps them if the removal
/// was started with `--keep-rights`. Then forgets that the removal is unfinished.
///
/// # Errors
/// The sessions cannot be listed.
pub(crate) async fn finish_removal(context: &Context, me: &Me) -> Result<Finished> {
    let kept = context.home.settings()?.kept_rights.remove(me.client.origin()).unwrap_or_default();
    let all: Vec<Session> =
        me.client.sessions(SessionFilter { active_only: false, shared: true }).try_collect().await?;
    let (sessions, foreign): (Vec<Session>, Vec<Session>) =
        all.into_iter().partition(|session| session.access_level == AccessLevel::Owner);
    let known = context.home.known_sessions(me.client.origin())?;
    let limit = Duration::from_secs(RECENT_DAYS * 24 * 3600);
    let is_recent = |session: &Session| session.online || now().since(session.updated_at) < limit;
    // Those that have a new key already need no other one: a command that was killed goes on where it was.
    let (mut wanted, mut later) = (Vec::new(), Vec::new());
    for session in &sessions {
        if me.is_due(session, known.get(&session.id)) {
            let is_at_once = is_recent(session) || me.is_without_its_host(session);
            if is_at_once && wanted.len() < MOST_AT_ONCE { wanted.push(session) } else { later.push(session) }
        }
    }
    let mut rekeyed = 0;
    for (done, session) in wanted.iter().enumerate() {
        match me.rekey_if_due(context, (*session).clone(), &Members::given_by(&kept)).await {
            Ok(true) => rekeyed += 1,
            Ok(false) => {}
            // Others must get theirs. This one is tried again before its next message.
            Err(failure) => print::note(format!("Session {} has no new key: {failure}", session.reference)),
        }
        if (done + 1) % 10 == 0 {
            print::note(format!("{} of {} sessions are done.", done + 1, wanted.len()));
        }
    }
    if !kept.is_empty() {
        share_again(context, me, &later, &kept).await;
    }
    let is_live = |session: &&Session| session.hosted && !me.is_without_its_host(session);
    let (recent, old): (Vec<_>, Vec<_>) = sessions.iter().filter(is_live).partition(|session| is_recent(session));
    let rights = settle_rights(context, me, &[recent, old].concat(), &kept).await;
    if let Err(failure) = super::machine::renew_keys(me).await {
        print::note(format!("Your machines have no new keys: {failure}"));
    }
    context.home.change_settings(|settings| {
        if settings
            .unfinished_removals
            .get(me.client.origin())
            .is_some_and(|version| *version <= me.own().list.version())
        {
            settings.unfinished_removals.remove(me.client.origin());
            settings.kept_rights.remove(me.client.origin());
        }
    })?;
    Ok(Finished { rekeyed, rights, foreign })
}

/// Renews the shares that removed devices have made, in sessions that get their new key later.
async fn share_again(context: &Context, me: &Me, sessions: &[&Session], kept: &BTreeSet<String>) {
    for session in sessions.iter().take(MOST_AT_ONCE) {
        if let Err(failure) = me.share_again(context, (*session).clone(), kept).await {
            print::note(format!("The device's shares of session {} may end: {failure}", session.reference));
        }
    }
    if sessions.len() > MOST_AT_ONCE {
        print::note(format!(
            "What the device has shared in the {} oldest sessions ends with their next key.",
            sessions.len() - MOST_AT_ONCE
        ));
    }
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

/// Notes that sessions have to get new keys because of this list, before it is sent: a command that is killed after that is
/// finished by the next one.
pub(crate) fn begin_removal(context: &Context, me: &Client, version: u32) -> Result<()> {
    context.home.change_settings(|settings| {
        // An earlier one that is not finished stays the one to be finished.
        settings.unfinished_removals.entry(me.origin().to_owned()).or_insert(version);
    })
}

/// Waits until every service has learnt of a removal. Until then a removed device can still change what it could change.
pub(crate) async fn settle() {
    print::note("Waiting until no service accepts its tokens any more (12 s).");
    tokio::time::sleep(SETTLED).await;
}
