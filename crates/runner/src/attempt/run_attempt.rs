//! Runs one attempt: checks, starts the agent, and judges its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ensemble_agent::{ApiKey, Attended, Kind, Launch, Prompt, Start, Unattended, takes_tools};
use ensemble_host::drain::Phase;
use ensemble_host::sign_in::has_other_model;
use ensemble_host::{Agent, How, Known, until_resumable};
use ensemble_process::disk::on_disk;
use ensemble_process::{Directory, EXIT_STAGE, Exit};
use ensemble_protocol::transcript::words::Mode;
use ensemble_types::ids::{RunId, unique};
use ensemble_types::leases::{Lease, LeaseFinish};
use ensemble_types::runs::Permission;
use tokio::time::{Instant, sleep_until};

use super::Context;
use super::enter::{self, NotEntered};
use super::execution::{Around, Execution, Over, Why, append};
use super::heartbeat::{Heartbeat, LeaseState};
use super::slash::protected;
use super::slot::Slot;
use super::turn::{Turn, is_session};
use crate::directory;
use crate::offers::{NotOffered, Offer};
use crate::outcome::{Outcome, Stop};
use crate::spool::{OutputSpool, Record};

/// The prompt of an attempt that resumes the session of an earlier one. The session has the task's own prompt.
const CONTINUE: &str = "You were interrupted before you had finished this task. Look at what is done already, do not repeat \
                        it, and finish the task.";

/// How long the server has to confirm the lease before the program starts.
pub(super) const FIRST_BEAT: Duration = Duration::from_secs(2);

/// Runs the attempt and returns its report. `None`: the lease is lost, and no process of the attempt runs any more.
pub(super) async fn run_attempt(
    context: &Context,
    lease: &Lease,
    offer: Option<Offer>,
    record: &Record,
    (output, heartbeat, slot): (&Arc<OutputSpool>, &Heartbeat, &mut Slot),
) -> Option<LeaseFinish> {
    let mut prepared = match prepare(context, lease, offer).await {
        Ok(prepared) => prepared,
        Err(outcome) => return Some(outcome.report(lease.fence)),
    };
    // If the machine slept after it received the lease, another runner may already have the task.
    match heartbeat.first(FIRST_BEAT).await {
        LeaseState::Lost => return None,
        LeaseState::CancelRequested => return Some(Outcome::cancelled().report(lease.fence)),
        LeaseState::Unknown | LeaseState::Held => {}
    }
    let place = match enter::enter(context, lease, prepared.directory.clone(), (heartbeat, slot)).await {
        Ok(place) => place,
        Err(NotEntered::Lost) => return None,
        Err(NotEntered::Ended(outcome)) => return Some(outcome.report(lease.fence)),
    };
    prepared.directory = place.directory.clone();
    let deadline = Instant::now() + Duration::from_millis(lease.timeout_ms);
    let mut resume = lease.resume.as_deref().filter(|session| is_session(session));
    if lease.follow_up && resume.is_none() {
        return Some(session_lost().report(lease.fence));
    }
    // The person may be at another machine, and only the output gets there. A resumed conversation has said it already.
    if resume.is_none() {
        for sentence in place.absent().await {
            append(output, format!("[worktree] {sentence}\n")).await;
        }
    }
    let around = Around { context, heartbeat, record, output, deadline };
    let mut has_begun = false;
    loop {
        if let Some(conversation) = resume {
            let stop = tokio::select! {
                () = until_resumable(&prepared.known, &context.config.environment, conversation) => None,
                () = heartbeat.reached(LeaseState::Lost) => return None,
                () = heartbeat.reached(LeaseState::CancelRequested) => Some(Stop::Cancel),
                () = context.drain.reached(Phase::HandingBack) => Some(Stop::HandBack),
                () = sleep_until(deadline) => Some(Stop::Timeout),
            };
            if stop.is_some() {
                let turn = Turn::new(lease.provider, lease.max_cost_usd, prepared.prompt(lease, true));
                return Some(turn.verdict(None, stop, "").report(lease.fence));
            }
        }
        let begun = match context.workplaces.forget_shown(&place) {
            Ok(()) => prepared.start(context, lease, resume).await,
            Err(error) => Err(error.to_string()),
        };
        let agent = match begun {
            Ok(agent) => agent,
            Err(error) => {
                if !has_begun {
                    context.workplaces.show_again(&place);
                }
                return Some(spawn_failed(lease, &error).report(lease.fence));
            }
        };
        has_begun = true;
        let turn = Turn::new(lease.provider, lease.max_cost_usd, prepared.prompt(lease, resume.is_some()));
        let Over { turn, why, exit, stderr } = Execution::new(around, agent, turn).run().await;
        let stop = match why {
            Why::LeaseLost => return None,
            Why::Stopped(stop) => Some(stop),
            Why::Exited => None,
        };
        let exit = match exit.transpose() {
            Ok(exit) => exit,
            Err(reason) => return Some(spawn_failed(lease, &reason).report(lease.fence)),
        };
        if stop.is_none() && resume.is_some() && turn.has_lost_session() {
            if lease.follow_up {
                return Some(session_lost().report(lease.fence));
            }
            tracing::info!(lease.id = %lease.id, "The provider's session no longer exists; starting a new session");
            resume = None;
            continue;
        }
        let handed_back = matches!(stop, Some(Stop::HandBack));
        let outcome = outcome_of(lease, &turn, exit, stop, &stderr);
        if outcome.error.is_some() && stop.is_none() && !stderr.trim().is_empty() {
            append(output, format!("\n[standard error]\n{}\n", stderr.trim().replace('\0', "\u{fffd}"))).await;
        }
        let report = turn.report(outcome.report(lease.fence));
        // The next attempt continues from what a handed-back one has left, and the runner is about to end.
        let changes = if handed_back { None } else { enter::save_changes(context, &place, record).await };
        return Some(LeaseFinish { permission: Some(prepared.permission), changes, ..report });
    }
}

fn outcome_of(lease: &Lease, turn: &Turn, exit: Option<Exit>, stop: Option<Stop>, stderr: &str) -> Outcome {
    // The stage prints the reason why it could not start the program.
    if exit == Some(Exit::Code(EXIT_STAGE)) && stop.is_none() && turn.session().is_none() {
        return spawn_failed(lease, stderr.trim());
    }
    turn.verdict(exit, stop, stderr)
}

/// A follow-up to a conversation means nothing in a new one.
fn session_lost() -> Outcome {
    let message =
        "The agent's conversation no longer exists on this machine, so nothing can be added to it. Submit a new run.";
    Outcome::not_startable("SESSION_LOST", message)
}

fn spawn_failed(lease: &Lease, reason: &str) -> Outcome {
    Outcome::refused("SPAWN_FAILED", format!("{} could not be started: {reason}", lease.provider))
}

/// The parts that stay the same when the program has to be started a second time.
struct Prepared<'a> {
    known: Known,
    version: Option<String>,
    directory: Directory,
    model: Option<&'a str>,
    config: &'a crate::config::Config,
    permission: Permission,
}

async fn prepare<'a>(context: &'a Context, lease: &'a Lease, offer: Option<Offer>) -> Result<Prepared<'a>, Outcome> {
    let refused = |why: NotOffered| {
        let reason = why.reason.trim_end_matches('.');
        Outcome::refused(why.code, format!("{} cannot run on this machine: {reason}.", lease.provider))
    };
    let offer = offer.ok_or_else(|| refused(NotOffered::unavailable("the runner does not offer it")))?;
    offer.program.map_err(refused)?;
    let config = &*context.config;
    let agent = config.agent(lease.provider.as_str());
    let (known, provider) = agent.map_err(|why| refused(NotOffered::unavailable(why)))?;
    let model = lease.model.as_deref().filter(|model| *model != "default");
    if model.is_some_and(|model| !is_model(model)) {
        return Err(Outcome::not_startable(
            "INVALID_MODEL",
            "The model name contains characters that are not allowed. Correct the task's model.",
        ));
    }
    let (blocking, wanted, run) = (context.clone(), lease.working_directory.clone(), lease.run_id);
    let directory = on_disk(move || Ok(working_directory(&blocking, wanted.as_deref(), run)))
        .await
        .unwrap_or_else(|error| Err(no_directory(&error)))?;
    check_tools(lease, known.kind, &provider)?;
    if lease.max_cost_usd.is_some_and(|max| max <= 0.0) {
        let message = "The attempts of the task have cost as much as it may.";
        return Err(Outcome::not_startable("COST_LIMIT_REACHED", message));
    }
    let permission =
        lease.permission.unwrap_or(provider.permission).min(provider.permission_limit.max(provider.permission));
    if permission == Permission::Bypass {
        let text =
            "This attempt runs without permission checks, because its task asks for it and the configuration allows it";
        let (lease_id, task_id, provider) = (lease.id, lease.task_id, lease.provider);
        if context.unchecked.is_first(provider) {
            tracing::warn!(lease.id = %lease_id, task.id = %task_id, %provider, "{text}. Further ones of this agent are logged at the level DEBUG");
        } else {
            tracing::debug!(lease.id = %lease_id, task.id = %task_id, %provider, "{text}");
        }
    }
    Ok(Prepared { known, version: offer.version, directory, model, config, permission })
}

/// The machine's owner says in the configuration which tools tasks may name.
fn check_tools(lease: &Lease, kind: Kind, provider: &crate::config::ProviderConfig) -> Result<(), Outcome> {
    if !lease.allowed_tools.is_empty() && !takes_tools(kind) {
        let message = format!("{} takes no allowedTools. Leave them out, or use another provider.", lease.provider);
        return Err(Outcome::refused("TOOLS_NOT_ALLOWED", message));
    }
    // Where a task may run everything, it may also ask for less. The host has refused what only a primary device may ask for.
    let is_allowed = |tool: &&String| provider.allows_all() || provider.names(tool);
    match lease.allowed_tools.iter().find(|tool| !is_allowed(tool)) {
        None => Ok(()),
        Some(tool) => Err(Outcome::refused(
            "TOOLS_NOT_ALLOWED",
            format!(
                "This runner does not allow the tool {tool:?}. Add it to providers.{}.allowedTools in the runner's \
                 configuration (runner.yaml).",
                lease.provider
            ),
        )),
    }
}

fn working_directory(context: &Context, wanted: Option<&str>, run: RunId) -> Result<Directory, Outcome> {
    let workspaces = context.spool.workspaces();
    match wanted {
        Some(wanted) => {
            let mut roots = context.config.roots.clone();
            roots.push(workspaces);
            directory::find(Path::new(wanted), &roots)
        }
        None => {
            let path = context.spool.workspace(run).map_err(|error| no_directory(&error))?;
            directory::find(&path, &[workspaces])
        }
    }
}

fn no_directory(error: &std::io::Error) -> Outcome {
    Outcome::refused("RUNNER_DISK", format!("The runner cannot create a working directory: {error}."))
}

impl Prepared<'_> {
    /// The task's own prompt. A session that is resumed has it already.
    fn prompt(&self, lease: &Lease, is_resumed: bool) -> Prompt {
        let text = if is_resumed && !lease.follow_up {
            CONTINUE.to_owned()
        } else {
            let directory = self.directory.root.join(&self.directory.below);
            protected(lease.provider, &lease.prompt, &directory, &self.config.environment)
        };
        Prompt { id: unique().to_string(), text, attachments: Vec::new(), steer: false }
    }

    async fn start(&self, context: &Context, lease: &Lease, resume: Option<&str>) -> Result<Agent, String> {
        let start = Start {
            directory: self.directory.root.join(&self.directory.below).display().to_string(),
            session_id: unique().to_string(),
            mode: match self.permission {
                Permission::Plan => Mode::Plan,
                Permission::Ask => Mode::Ask,
                Permission::Edit => Mode::Edit,
                Permission::Bypass => Mode::Bypass,
            },
            model: self.model.map(str::to_owned),
            resume: resume.map(str::to_owned),
            fork: false,
            cost_before: lease.resume_cost_usd.filter(|_| resume.is_some()).unwrap_or_default(),
            as_root: nix::unistd::geteuid().is_root(),
            checkpoint: None,
            mcp_servers: Vec::new(),
            private: None,
            attended: Attended::Unattended(Box::new(Unattended {
                tools: lease.allowed_tools.clone(),
                max_cost_usd: lease.max_cost_usd,
                version: self.version.clone(),
                api_key: self.api_key(),
            })),
        };
        let traceparent = lease.traceparent.clone().map(|value| ("TRACEPARENT".to_owned(), value));
        let env = traceparent.into_iter().collect();
        let how = How { launch: Launch::default(), directory: self.directory.clone(), env };
        Agent::start(&context.settings, &self.known, (start, how), &self.config.environment, lease.id.uuid()).await
    }

    /// `codex exec` takes this variable, and its app server leaves it to the client.
    fn api_key(&self) -> Option<ApiKey> {
        let env = self.known.env(&self.config.environment, &BTreeMap::new());
        let key = env.get("CODEX_API_KEY").filter(|key| !key.is_empty() && self.known.kind == Kind::Codex)?;
        (!has_other_model(&env, &self.known.last_args)).then(|| ApiKey(key.clone()))
    }
}

/// Whether a model name is valid in the interface. Names that look like an option or need quoting are not.
fn is_model(name: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b"._:/[]-".contains(&b);
    name.len() <= 128 && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_options_are_refused() {
        for good in ["gpt-5", "claude-opus-4-8[1m]", "models/x:y", "a"] {
            assert!(is_model(good), "{good}");
        }
        for bad in ["", "-m", "--help", "a b", "a;b", "$(x)", "ä", "a\0", &"x".repeat(129)] {
            assert!(!is_model(bad), "{bad}");
            assert!(!is_session(bad), "{bad}");
        }
    }
}
