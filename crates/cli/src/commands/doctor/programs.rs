//! The programs that tasks need on this machine: git and the agents.

use ensemble_agent::known;
use ensemble_plan::is_reported;
use ensemble_runner::{Config, OLDEST_GIT, git_version, offers};

use super::{Findings, Verdict};
use crate::commands::submit::INSTALL;
use crate::machines::Runner;
use crate::print;

/// The version of git, and what cannot be done with it.
pub(super) async fn git(config: &Config, findings: &mut Findings) {
    let (major, minor) = OLDEST_GIT;
    let advice = format!("install git {major}.{minor} or newer");
    match git_version(&config.environment).await {
        Some((its_major, its_minor)) if (its_major, its_minor) >= OLDEST_GIT => {
            findings.ok("git", format!("version {its_major}.{its_minor}"));
        }
        Some((its_major, its_minor)) => {
            let found = format!(
                "version {its_major}.{its_minor}: tasks in worktrees are refused, because their changes could not be applied"
            );
            findings.add("git", Verdict::Note, found, Some(advice));
        }
        None => {
            let found = "it cannot be run: tasks in worktrees are refused, and no task says what it has changed";
            findings.add("git", Verdict::Note, found, Some(advice));
        }
    }
}

/// Each provider as this machine has it, and as the runner offers it. One is enough.
pub(super) async fn providers(config: &Config, runner: Option<&Runner>, findings: &mut Findings) {
    let (mut usable, mut installed) = (0, 0);
    for offer in offers(config).await {
        let check = offer.provider.as_str();
        let state = runner.and_then(|runner| runner.providers.iter().find(|state| state.provider == check));
        let mut found = Vec::new();
        let mut advice = None;
        match &offer.program {
            Ok(program) => {
                found.push(program.display().to_string());
                found.push(offer.version.clone().unwrap_or_else(|| "does not say its version".to_owned()));
                if offer.signed_in.is_none() {
                    found.push("does not say whether it is signed in".to_owned());
                }
            }
            Err(not) => found.push(not.reason.clone()),
        }
        let signed_in = offer.signed_in.or_else(|| state.and_then(|state| state.signed_in));
        // What this computer has found out says itself what is missing.
        if signed_in == Some(false) && offer.signed_in.is_none() {
            let how = known::named(check).and_then(|known| known.sign_in.as_ref()).map_or(check, |sign_in| sign_in.how);
            advice = Some(format!("sign in: `{how}`"));
        }
        let note = known::named(check).filter(|known| known.starts.is_some()).and_then(|known| known.note);
        found.extend(note.map(str::to_owned));
        let is_offered = state.map_or(offer.program.is_ok(), |state| state.offered);
        match state {
            Some(state) if state.offered => {
                found.push("offered".to_owned());
                if !is_reported(offer.provider) {
                    found.push("reports no costs, so limits of cost are not kept".to_owned());
                }
            }
            Some(state) if offer.program.is_ok() => {
                let reason = print::short(state.reason.as_deref().unwrap_or("for an unknown reason"), 200);
                found.push(format!("not offered by the runner: {reason}"));
                advice.get_or_insert_with(|| {
                    "wait a minute: the runner looks again. If it stays so, start the runner again".to_owned()
                });
            }
            _ => {}
        }
        installed += usize::from(offer.program.is_ok() || offer.version.is_some());
        usable += usize::from(is_offered && offer.program.is_ok());
        let verdict = if is_offered && offer.program.is_ok() { Verdict::Ok } else { Verdict::Note };
        findings.add(check, verdict, found.join(", "), advice.filter(|_| verdict != Verdict::Ok));
    }
    if usable == 0 {
        let advice = match installed {
            0 => INSTALL,
            _ => "make one of them usable, as said above. The runner finds it within a minute",
        };
        findings.wrong("providers", "none can be used", advice);
    }
}
