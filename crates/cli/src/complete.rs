//! Completion of refs: a shell asks this program for the runs, tasks, sessions and machines while a person types.
//!
//! An answer that takes long or cannot be given is no answer. Nothing else is printed, and no account is made.

use std::path::PathBuf;
use std::time::Duration;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use ensemble_account::Account;
use ensemble_account::sessions::Titles;
use ensemble_agent::known;
use ensemble_client::SessionFilter;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::global::Global;
use crate::machines::Machines;
use crate::named::Which;
use crate::print;

/// How long a person waits for the Tab key.
const LONGEST: Duration = Duration::from_secs(2);
/// At most this many are offered, the newest ones.
const MOST: u32 = 50;

pub(crate) fn runs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask(async |me| {
            let runs = me.client.run_page(None, Some(MOST), None).await?.runs;
            let said = |run: &ensemble_types::runs::Run| {
                format!("{} {}", run.status.as_str(), run.title.as_deref().unwrap_or_default())
            };
            Ok(runs.iter().map(|run| candidate(run.reference.as_str(), &said(run))).chain([last("run")]).collect())
        })
    })
}

/// The tasks of the run that was typed before.
pub(crate) fn tasks() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Some(run) = typed_run() else { return Vec::new() };
        ask(async |me| {
            let run = run.get(me).await?;
            let tasks = run.tasks.iter().flatten().take(MOST as usize).enumerate();
            let found = tasks.map(|(at, task)| {
                let said = format!("{} {}", task.status.as_str(), task.title.as_deref().unwrap_or_default());
                candidate(&task.task_key.clone().unwrap_or_else(|| (at + 1).to_string()), &said)
            });
            Ok(found.collect())
        })
    })
}

/// The run among the words that the shell passes on, which follow `--`.
fn typed_run() -> Option<Which> {
    std::env::args().skip_while(|word| word != "--").skip(3).find_map(|word| word.parse().ok())
}

/// The agents that need no configuration.
pub(crate) fn agents() -> ArgValueCandidates {
    ArgValueCandidates::new(|| known::ALL.iter().map(|known| CompletionCandidate::new(known.name)).collect())
}

/// These words and nothing else.
pub(crate) fn words(words: &'static [&'static str]) -> ArgValueCandidates {
    ArgValueCandidates::new(move || words.iter().map(CompletionCandidate::new).collect())
}

pub(crate) fn sessions() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask(async |me| {
            let titles = Titles::of(me)?;
            let all = SessionFilter { shared: true, ..SessionFilter::default() };
            let sessions = me.client.session_page(all, Some(MOST), None).await?.sessions;
            let mut found = Vec::with_capacity(sessions.len() + 1);
            for session in &sessions {
                let card = titles.title(session).await.shown();
                let title = card.title.or(card.path.as_deref().map(print::below_home)).unwrap_or_default();
                found.push(candidate(session.reference.as_str(), &title));
            }
            titles.keep()?;
            found.push(last("session"));
            Ok(found)
        })
    })
}

pub(crate) fn machines() -> ArgValueCandidates {
    ArgValueCandidates::new(known_machines)
}

pub(crate) fn machines_or_any() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let any = CompletionCandidate::new("any").help(Some("whichever is free".into()));
        known_machines().into_iter().chain([any]).collect()
    })
}

fn known_machines() -> Vec<CompletionCandidate> {
    ask(async |me| {
        let machines = Machines::load(me).await?;
        let found = machines.all().iter().map(|known| {
            let id = &known.machine.id;
            let name = machines.name(id).or_else(|| machines.without_name(id)).unwrap_or_default();
            candidate(known.machine.reference.as_str(), name)
        });
        Ok(found.collect())
    })
}

fn candidate(reference: &str, said: &str) -> CompletionCandidate {
    let said = print::clean(&print::inline(&print::short(said, 60))).into_owned();
    CompletionCandidate::new(reference).help((!said.trim().is_empty()).then(|| said.into()))
}

fn last(what: &str) -> CompletionCandidate {
    CompletionCandidate::new("last").help(Some(format!("the {what} that was used last here").into()))
}

fn ask(find: impl AsyncFnOnce(&Account) -> Result<Vec<CompletionCandidate>>) -> Vec<CompletionCandidate> {
    let answer = || -> Result<Vec<CompletionCandidate>> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let server = variable("ENSEMBLE_SERVER").and_then(|server| server.into_string().ok());
        let home = variable("ENSEMBLE_HOME").map(PathBuf::from);
        let context = Context::new(Global { server, json: false, home })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let found = runtime.block_on(async {
            let asked = async {
                let me = context.signed_in().await?;
                find(&me).await
            };
            tokio::time::timeout(LONGEST, asked).await
        });
        runtime.shutdown_background();
        found.unwrap_or_else(|_| Err(Failure::message("The server did not answer in time.")))
    };
    answer().unwrap_or_default()
}
