//! The agents' own conversations of a directory: which there are, and which one is continued.

use std::cmp::Reverse;
use std::path::Path;

use clap::Args;
use ensemble_host::conversations::{Conversation, InUse, continued_by, list};
use ensemble_screen::lines::{Column, Table, Tone};
use serde_json::json;

use super::DONE;
use super::agent::has_terminal;
use super::run::here;
use super::runner::Options;
use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;
use crate::when;

/// The agents that list theirs.
const AGENTS: [&str; 2] = ["claude", "codex"];

/// Which conversation of the agent is continued.
#[derive(Debug, Default, Args)]
pub(super) struct Continued {
    /// Continue a conversation that you began with the agent itself, by the agent's own id: `ensemble sessions --local` lists them
    #[arg(long, value_name = "ID", conflicts_with = "continues")]
    pub(super) resume_conversation: Option<String>,
    /// Continue a copy of that conversation
    #[arg(long, requires = "resume_conversation")]
    pub(super) copy: bool,
    /// Continue that conversation itself, although it has just changed
    #[arg(long, requires = "resume_conversation", conflicts_with = "copy")]
    take_over: bool,
}

/// `ensemble sessions --local`.
pub(super) async fn show(context: &Context) -> Result {
    let directory = here()?.canonicalize()?;
    let mut all = Vec::new();
    for agent in AGENTS {
        match of(context, agent, &directory).await {
            Ok(found) => all.extend(begun_elsewhere(found)),
            Err(why) => print::note(format!("{agent}: {why}")),
        }
    }
    all.sort_by_key(|one| Reverse(one.changed_at));
    if context.json {
        print::json(&json!({ "conversations": all }), false)?;
    } else if all.is_empty() {
        print::line("You have begun no conversation with claude or codex themselves in this directory.")?;
    } else {
        print::table(&table(&all))?;
    }
    Ok(DONE)
}

/// Those that the person has begun with an agent itself. None, where the agent does not list them.
pub(super) async fn of(context: &Context, agent: &str, directory: &Path) -> Result<Vec<Conversation>> {
    let config = Options::default().for_check(context)?;
    let known = config.known(agent).map_err(|why| Failure::message(format!("{why}.")))?;
    let hosts = context.home.path().join("hosts");
    list((agent, &known), &config.environment, directory, hosts).await.map_err(Failure::message)
}

/// Those that no session of this computer continues.
pub(super) fn begun_elsewhere(all: Vec<Conversation>) -> impl Iterator<Item = Conversation> {
    all.into_iter().filter(|one| one.session.is_none())
}

pub(super) fn table(all: &[Conversation]) -> Table {
    let heads = [("AGENT", 0), ("CONVERSATION", 0), ("CHANGED", 2), ("IN USE", 1)];
    let fixed = heads.map(|(head, rank)| Column::fixed(head, rank)).into_iter();
    let mut table = Table::new(fixed.chain([Column::text("FIRST PROMPT", 1, 12)]).collect::<Vec<_>>());
    for one in all {
        let in_use = match one.in_use {
            Some(InUse::Open(process)) => format!("by process {process}"),
            Some(InUse::JustChanged) => "maybe".to_owned(),
            None => String::new(),
        };
        let cells = [one.agent.clone(), one.id.clone(), when::ago(one.changed_at), in_use, one.first_prompt.clone()];
        table.row(cells.map(|cell| (Tone::Plain, cell)));
    }
    table
}

impl Continued {
    /// Makes sure that no other program works with the conversation, or that a copy is continued.
    pub(super) async fn settle(&mut self, context: &Context, agent: &str, directory: &Path) -> Result<()> {
        let Some(id) = self.resume_conversation.as_deref().filter(|_| AGENTS.contains(&agent)) else { return Ok(()) };
        let command = format!("`ensemble {agent} --resume-conversation {id}");
        let mut is_taken_over = self.take_over;
        loop {
            let found = of(context, agent, directory).await?.into_iter().find(|one| one.id == id);
            let found = found.ok_or_else(|| {
                let place = directory.display();
                Failure::message(format!(
                    "{id} is none of the newest conversations of {agent} in {place}: `ensemble sessions --local`."
                ))
            })?;
            let why = match (found.in_use, &found.session) {
                _ if self.copy => return Ok(()),
                (_, Some(session)) => continued_by(session),
                (None, None) => return Ok(()),
                (Some(InUse::JustChanged), None) if is_taken_over => return Ok(()),
                (Some(InUse::JustChanged), None) => {
                    "It has changed within a minute, so a program may work with it.".to_owned()
                }
                (Some(InUse::Open(process)), None) => {
                    format!("Process {process} has it open. End that one before you take it over.")
                }
            };
            if !has_terminal() || is_taken_over {
                return Err(Failure::message(format!(
                    "{why} {command} --copy` continues a copy of it, and {command} --take-over` the conversation itself."
                )));
            }
            print::note(why);
            if confirm::change("Continue a copy of it")? {
                self.copy = true;
                return Ok(());
            }
            if !confirm::change("Take it over: has the other program ended")? {
                return Err(Failure::message("Nothing was begun."));
            }
            is_taken_over = true;
        }
    }
}
