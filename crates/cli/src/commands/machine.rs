//! `ensemble machine`: registers, lists, shows and deletes machines.

use clap::{Args, Subcommand};
use ensemble_account::Account;
use ensemble_screen::lines::{Column, Table, Tone};
use ensemble_types::ids::MachineId;
use ensemble_types::machines::Machine as Record;

use super::DONE;
use super::submit::names;
use crate::complete;
use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::machines::{Card, Known, Machines, runner};
use crate::print;
use crate::when;

#[derive(Debug, Subcommand)]
pub(crate) enum Machine {
    /// Register this machine and store a token for its runner
    Register(Register),
    /// List your machines
    #[command(visible_alias = "ls")]
    List,
    /// Show one machine
    Show {
        /// The machine's ref, id or name
        #[arg(add = complete::machines())]
        machine: String,
    },
    /// Name a machine. Only a primary device can, and only your own devices see the name
    Rename {
        /// The machine's ref, id or name
        #[arg(add = complete::machines())]
        machine: String,
        /// 1 to 63 of the characters a-z, 0-9, '.', '_' and '-'
        name: String,
    },
    /// Delete a machine: its runner loses access, and tasks that only it may do fail
    #[command(visible_alias = "rm")]
    Delete {
        /// The machine's ref, id or name
        #[arg(add = complete::machines())]
        machine: String,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Register {
    /// The machine's id: 1 to 64 of A-Z a-z 0-9 _ - [default: `m-` and ten random characters]
    #[arg(long)]
    id: Option<MachineId>,
}

impl Machine {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        match self {
            Self::Register(register) => {
                let machine = me.register_this(register.id).await?.machine;
                if context.json {
                    let machines = Machines::load(&me).await?;
                    print::json(&machines.get(&machine.id).map(|known| opened(&machines, known)), false)?;
                } else {
                    let machines = Machines::if_available(&me).await;
                    print::line(format!(
                        "This machine is registered as {}. `ensemble runner` runs tasks on it.",
                        machines.called(&machine.id)
                    ))?;
                }
            }
            Self::List => list(context, &me).await?,
            Self::Show { machine } => show(context, &me, &machine).await?,
            Self::Rename { machine, name } => rename(context, &me, &machine, &name).await?,
            Self::Delete { machine, yes } => {
                let (machines, known) = find(&me, &machine).await?;
                let busy = runner(&known.machine).map_or(0, |runner| runner.running);
                let Record { id, online, .. } = known.machine;
                let called = machines.called(&id);
                if !yes {
                    let state = match (online, busy) {
                        (true, 0) => ", which is online,".to_owned(),
                        (true, busy) => format!(", which is online and runs {busy} tasks,"),
                        (false, _) => String::new(),
                    };
                    print::note("Its runner loses access, and tasks that only it may do fail.");
                    confirm::deletion(&format!("machine {called}{state} for ever"))?;
                }
                let rekeyed = me.delete_machine(&id).await?.rekeyed;
                if context.json {
                    print::json(&serde_json::json!({ "success": true, "rekeyed": rekeyed }), false)?;
                } else {
                    let keys =
                        if rekeyed == 0 { String::new() } else { format!(" {rekeyed} sessions have a new key.") };
                    print::line(format!("Deleted {called}.{keys}"))?;
                }
            }
        }
        Ok(DONE)
    }
}

async fn list(context: &Context, me: &Account) -> Result<()> {
    let machines = Machines::load(me).await?;
    if context.json {
        let all: Vec<_> = machines.all().iter().map(|known| opened(&machines, known)).collect();
        return print::json(&serde_json::json!({ "machines": all }), false);
    }
    if machines.all().is_empty() {
        return print::line("You have no machines. Register this one with `ensemble machine register`.");
    }
    let mut table = Table::new([
        Column::text("NAME", 1, 8),
        Column::fixed("MACHINE", 0),
        Column::fixed("STATE", 0),
        Column::fixed("OFFERS", 3),
        Column::fixed("WORKTREES", 6),
        Column::fixed("LAST SEEN", 5),
        Column::fixed("", 4),
    ]);
    for Known { machine, .. } in machines.all() {
        let name = match (machines.name(&machine.id), machines.without_name(&machine.id)) {
            (None, Some(why)) => (Tone::Dim, why),
            (name, _) => (Tone::Plain, name.unwrap_or_default()),
        };
        let state = match (machine.online, runner(machine)) {
            (true, Some(runner)) if runner.draining => (Tone::Busy, "drains"),
            (true, _) => (Tone::Good, "online"),
            (false, _) => (Tone::Dim, "offline"),
        };
        let offers = names(&machines.offered(Some(&machine.id)));
        let worktrees = match runner(machine).and_then(|runner| runner.worktrees) {
            Some(found) if found.is_nearly_full() => (Tone::Bad, format!("{} of {}", found.kept, found.most)),
            Some(found) if found.kept > 0 => (Tone::Plain, format!("{} of {}", found.kept, found.most)),
            _ => (Tone::Plain, String::new()),
        };
        let this = if machines.this() == Some(&machine.id) { "this machine" } else { "" };
        table.row([
            (name.0, name.1.to_owned()),
            (Tone::Plain, machine.reference.to_string()),
            (state.0, state.1.to_owned()),
            (Tone::Plain, offers),
            worktrees,
            (Tone::Plain, machine.last_active_at.map(when::ago).unwrap_or_default()),
            (Tone::Dim, this.to_owned()),
        ]);
    }
    print::table(&table)
}

/// The machine with this name, id or ref, and all machines.
async fn find(me: &Account, named: &str) -> Result<(Machines, Known)> {
    let machines = Machines::load(me).await?;
    let known = machines.get(machines.find(named)?).cloned();
    let known = known.ok_or_else(|| Failure::message(format!("You have no machine {named}.")))?;
    Ok((machines, known))
}

async fn show(context: &Context, me: &Account, named: &str) -> Result<()> {
    let (machines, known) = find(me, named).await?;
    if context.json {
        return print::json(&opened(&machines, &known), false);
    }
    let machine = &known.machine;
    print::line(format!("machine    {} ({})", machine.reference, machine.id))?;
    let name = machines.name(&machine.id).or_else(|| machines.without_name(&machine.id));
    print::line(format!("name       {}", name.unwrap_or("none yet")))?;
    print::line(format!("state      {}", if machine.online { "online" } else { "offline" }))?;
    match &known.card {
        // A machine that was linked has not said what it is.
        Some(card) if card.os.is_empty() => {
            print::line(format!("host       {}, as it says", print::inline(&card.host)))?
        }
        Some(Card { host, os, arch, .. }) => {
            print::line(format!("host       {}, as it says", print::inline(&format!("{host} ({os}, {arch})"))))?;
        }
        None => print::note("Its metadata cannot be opened, or its key was not made by one of your devices."),
    }
    if let Some(runner) = runner(machine) {
        let drains = if runner.draining { ", drains" } else { "" };
        print::line(format!("runner     {} of {} tasks running{drains}", runner.running, runner.capacity))?;
        if let Some(worktrees) = runner.worktrees {
            print::line(format!("           {}", worktrees.words()))?;
        }
        for state in &runner.providers {
            let version = state.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
            let why = state.reason.clone().unwrap_or_else(|| format!("offered{version}"));
            print::line(format!("           {:7} {}", print::inline(&state.provider), print::inline(&why)))?;
        }
    }
    for (at, agent) in known.state.iter().flat_map(|state| &state.agents).enumerate() {
        let head = if at == 0 { "programs" } else { "" };
        print::line(format!("{head:10} {:7} {}", print::inline(&agent.name), print::inline(&agent.path)))?;
    }
    if let Some(at) = machine.last_active_at {
        print::line(format!("last seen  {}", when::both(at)))?;
    }
    print::line(format!("created    {}", when::both(machine.created_at)))
}

/// Renames a machine, in the next device list.
async fn rename(context: &Context, me: &Account, named: &str, name: &str) -> Result<()> {
    if !me.is_primary() {
        return Err(Failure::message(
            "This is a linked device, and a primary one names machines. Run the command on a primary device: `ensemble devices` shows \
             them.",
        ));
    }
    let (_, known) = find(me, named).await?;
    let machine = &known.machine;
    let own = me.own();
    let entry = own.list.body().devices.iter().find(|entry| entry.machine_id.as_ref() == Some(&machine.id));
    let entry = entry.ok_or_else(|| {
        Failure::message(format!(
            "The machine {} is not in your device list, so it has no name. `ensemble runner` on a primary device's computer puts its \
             machine there.",
            machine.reference
        ))
    })?;
    let name = me.rename_device(&entry.key, name).await?;
    if context.json {
        return print::json(&described(&known, Some(&name)), false);
    }
    print::line(format!("The machine {} is called {name}.", machine.reference))
}

/// The JSON of a machine: what the server knows, its name, and what it says of itself.
fn opened(machines: &Machines, known: &Known) -> serde_json::Value {
    described(known, machines.name(&known.machine.id))
}

fn described(Known { machine, card, state }: &Known, name: Option<&str>) -> serde_json::Value {
    serde_json::json!({ "machine": machine, "name": name, "metadata": card, "can": state })
}
