//! What `run` and `do` share: the options of a submission, and on which machine it runs.

mod agreement;
mod waits;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use ensemble_account::Account;
use ensemble_client::{Error, idempotency_key};
use ensemble_computer::place;
use ensemble_plan::{BOUNDS_OF_COST, Draft, Overrides, Step, TIMEOUTS, duration, is_cost};
use ensemble_types::ids::MachineId;
use ensemble_types::problem::Code;
use ensemble_types::runs::{Isolation, Permission, Provider, Run};

use crate::changes;
use crate::complete;
use crate::context::{Context, now};
use crate::failure::{Failure, Result};
use crate::machines::{Machines, Runner, runner};
use crate::print;
use crate::sealing::Sealing;
use crate::watching::{AllowDenials, Asked, named};

/// The options of a submission.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Submit, print the run's ref and do not wait
    #[arg(long, short)]
    pub(crate) detach: bool,
    /// The machine: its name, its ref or id, or `any` [default: this machine]
    #[arg(long, value_name = "NAME", add = complete::machines_or_any())]
    pub(crate) machine: Option<String>,
    /// The provider where none is named: claude, codex, gemini or another [default: the only one that the machine offers; if it
    /// offers several, `do` takes the first of them and says so]
    #[arg(long, add = complete::agents())]
    pub(crate) provider: Option<Provider>,
    /// The model where none is named
    #[arg(long, value_parser = model)]
    pub(crate) model: Option<String>,
    /// What the agent may do without asking, where it is not named: plan (read only), edit (files in its directory) or
    /// bypass (everything)
    #[arg(long, value_parser = permission, add = complete::words(&["plan", "edit", "bypass"]))]
    pub(crate) permission: Option<Permission>,
    /// A pattern of tools that the agent may also use, for example `Bash(npm test:*)`; can be repeated
    #[arg(long = "allow-tool", value_name = "PATTERN")]
    pub(crate) allow_tools: Vec<String>,
    /// The longest time of an attempt where none is named, 1s to 24h: 90s, 10m, 2h
    #[arg(long, value_parser = time)]
    pub(crate) timeout: Option<String>,
    /// What the attempts of a task may cost together, in dollars, where it is not named. Kept with claude only: codex and gemini do
    /// not report what they cost
    #[arg(long, value_name = "USD", value_parser = max_cost)]
    pub(crate) max_cost: Option<f64>,
    #[command(flatten)]
    pub(crate) allow: AllowDenials,
    /// Say yes: the machine is meant, and agents may do everything where the permission is bypass
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Submit only once: the same key (16 to 128 characters) again returns the same run
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

/// A lying server then holds several signed copies.
pub(super) const DRAWN_AGAIN: &str =
    "The server says that an id is already taken, so this is signed again under new ids. A machine does it only once.";

/// How often ids are drawn for what is submitted. Another run or task may have the ref of one.
#[derive(Debug)]
pub(super) struct Draws(u32);

impl Default for Draws {
    fn default() -> Self {
        Self(3)
    }
}

impl Draws {
    /// Whether to draw and to sign again after this error.
    pub(super) fn may_draw_again(&mut self, error: &Error) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0 && error.code() == Some(Code::Conflict)
    }
}

/// Which provider does a task that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The only one that is offered.
    Only,
    /// The first that is offered.
    First,
}

impl Options {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            provider: self.provider,
            model: self.model.clone(),
            permission: self.permission,
            timeout: self.timeout.clone(),
            isolation: None,
            max_cost_usd: self.max_cost,
        }
    }

    /// Submits the plan.
    pub(crate) async fn submit(
        &self,
        context: &Context,
        me: &Account,
        mut draft: Draft,
        choice: Choice,
    ) -> Result<(Run, Asked)> {
        draft.allow_tools(&self.allow_tools)?;
        let mut machines = Machines::load(me).await?;
        let written = agreement::written(&draft);
        draft.name_machines(|named| machines.find(named).cloned())?;
        let machine = place(self.machine.as_deref(), &draft, &machines)?;
        if let Some(elsewhere) = machine.as_ref().filter(|machine| Some(*machine) != machines.this())
            && let Some(step) = draft.steps.iter().find(|step| step.is_local && step.machine.is_none())
        {
            print::note(format!(
                "Works in {} on {}, not on this machine.",
                &*step.directory,
                machines.called(elsewhere)
            ));
        }
        check_places(&draft, machine.as_ref(), machines.this()).await?;
        self.agree((context, me), &draft, &written, (machine.as_ref(), &machines))?;
        changes::say_uncommitted(context, &draft, machine.as_ref(), &machines).await;
        if draft.needs_provider() {
            machines = looked(me, machine.as_ref(), machines).await?;
        }
        if !context.json {
            draft.unkept().for_each(|limit| print::note(format!("⚠ {limit}")));
        }
        let provider = match draft.needs_provider() {
            true => offered(machine.as_ref(), &machines, choice)?,
            false => Vec::new(),
        };
        let (provider, others) = match provider.split_first() {
            Some((first, others)) => (Some(*first), others.to_vec()),
            None => (None, Vec::new()),
        };
        let permissions = draft.steps.iter().map(|step| step.permission).collect();
        let on = |step: &Step| step.machine.clone().or_else(|| machine.clone());
        let wanted: Vec<_> = draft.steps.iter().filter_map(|step| Some((step.provider?, on(step)))).collect();
        let key = self.idempotency_key.clone().unwrap_or_else(idempotency_key);
        let (sealing, mut draws) = (Sealing { me, machines: &machines, machine }, Draws::default());
        let run = loop {
            let plan = draft.clone().create(provider, &sealing, now())?;
            match me.client.create_run(&plan, &key).await {
                Err(error) if draws.may_draw_again(&error) => print::note(DRAWN_AGAIN),
                made => break made?,
            }
        };
        me.use_run(run.id);
        let waits = if context.json { Vec::new() } else { waits::unoffered(&wanted, &machines) };
        waits.iter().for_each(print::note);
        let is_said_to_wait = !waits.is_empty();
        if is_said_to_wait {
            print::note(waits::leave(run.reference, self.detach));
        }
        Ok((run, Asked { machines: Some(machines), permissions, others, about: None, is_said_to_wait }))
    }

    /// Prints what `--detach` prints.
    pub(crate) fn detached(context: &Context, run: &Run, asked: &Asked) -> Result<()> {
        if context.json {
            let machines = asked.machines.clone().unwrap_or_default();
            return print::json(&named(&machines, run), false);
        }
        print::line(run.reference.to_string())
    }
}

/// Fails if a task that is pinned to this machine cannot begin in its directory. A task that waits for others is not checked,
/// because they may make what it needs.
async fn check_places(draft: &Draft, machine: Option<&MachineId>, this: Option<&MachineId>) -> Result<()> {
    let is_here = |step: &&Step| this.is_some() && step.machine.as_ref().or(machine) == this;
    for step in draft.steps.iter().filter(is_here).filter(|step| step.depends_on.is_empty()) {
        let has_worktree = step.isolation == Some(Isolation::Worktree) && step.base.is_none();
        place::check(Path::new(&*step.directory), has_worktree).await?;
    }
    Ok(())
}

/// The machine to which the run is pinned. `None`: any machine may take it.
pub(crate) fn place(named: Option<&str>, draft: &Draft, machines: &Machines) -> Result<Option<MachineId>> {
    let free = || draft.steps.iter().filter(|step| step.machine.is_none());
    let local = free().find(|step| step.is_local);
    let any = |why: &str| match local {
        Some(step) => Err(Failure::message(format!(
            "{why}, but task {} works in {}, which is a directory of this machine: on another one it is missing, or another \
             checkout. Give the task an absolute workingDirectory that every machine has, or name one machine with --machine.",
            step.called, &*step.directory
        ))),
        None => Ok(None),
    };
    match named {
        Some("any") => any("--machine any lets every machine take the tasks"),
        Some(named) => machines.find(named).map(|id| Some(id.clone())),
        None if draft.machine.is_some() => Ok(draft.machine.clone()),
        None if draft.spread == Some(true) => {
            any("The plan says `spread: true`, so several machines may take the tasks")
        }
        None if free().next().is_none() => Ok(None),
        None => match machines.this() {
            Some(this) => Ok(Some(this.clone())),
            None if machines.all().is_empty() => Ok(None),
            None => {
                any("This machine is not registered (`ensemble runner` does it), so another one would take the tasks")
            }
        },
    }
}

/// Waits while a runner that was just started is still looking for agents.
async fn looked(me: &Account, machine: Option<&MachineId>, machines: Machines) -> Result<Machines> {
    const LONGEST: Duration = Duration::from_secs(30);
    const EVERY: Duration = Duration::from_millis(300);
    let mut machines = machines;
    let begun = std::time::Instant::now();
    let is_looking = |machines: &Machines| {
        let mut considered = machines.all().iter().filter(|known| machine.is_none_or(|id| known.machine.id == *id));
        let looks = |runner: Runner| runner.providers.len() < Provider::ALL.len();
        machines.offered(machine).is_empty()
            && considered.any(|known| known.machine.online && runner(&known.machine).is_none_or(looks))
    };
    while is_looking(&machines) && begun.elapsed() < LONGEST {
        if begun.elapsed() < EVERY {
            print::note("The runner has just started and is looking for agents.");
        }
        tokio::time::sleep(EVERY).await;
        machines = Machines::load(me).await?;
    }
    Ok(machines)
}

/// The providers for tasks that name none. The first is taken.
fn offered(machine: Option<&MachineId>, machines: &Machines, choice: Choice) -> Result<Vec<Provider>> {
    let offered = machines.offered(machine);
    let on = machine.map_or("your machines".to_owned(), |id| machines.called(id));
    match offered.as_slice() {
        [] => Err(none_offered(machine, machines)),
        [_] => Ok(offered),
        [..] if choice == Choice::First => Ok(offered),
        [before @ .., last] => Err(Failure::message(format!(
            "The plan has a task without a provider, and {} and {last} are offered on {on}. Choose one with --provider, or with \
             `provider` in the plan.",
            names(before)
        ))),
    }
}

/// `claude, codex`
pub(crate) fn names(providers: &[Provider]) -> String {
    providers.iter().map(|provider| provider.as_str()).collect::<Vec<_>>().join(", ")
}

/// The reasons say with which commands.
pub(crate) const INSTALL: &str =
    "Install one and sign in to it, or sign in to one that is installed. The runner finds it within a minute.";

/// What to type when no provider is there.
fn none_offered(machine: Option<&MachineId>, machines: &Machines) -> Failure {
    let considered = machines.all().iter().filter(|known| machine.is_none_or(|id| known.machine.id == *id));
    let runners: Vec<_> =
        considered.filter_map(|known| Some((machines.called(&known.machine.id), runner(&known.machine)?))).collect();
    if runners.is_empty() {
        let place = machine.map_or("any of your machines".to_owned(), |id| machines.called(id));
        return Failure::message(format!(
            "No runner runs on {place}. Start one there with `ensemble runner` (or `ensemble up`). With --provider the run is \
             submitted all the same, and waits for it."
        ));
    }
    let mut text = String::from("No provider is offered:");
    for (name, runner) in &runners {
        for state in runner.providers.iter().filter(|state| !state.offered) {
            let reason = print::short(state.reason.as_deref().unwrap_or("not offered"), 200);
            text.push_str(&format!("\n  {name}: {}: {reason}", print::inline(&state.provider)));
        }
    }
    text.push('\n');
    text.push_str(INSTALL);
    Failure::message(text)
}

fn permission(text: &str) -> Result<Permission, &'static str> {
    let found = text.parse().ok().filter(|permission| *permission != Permission::Ask);
    found.ok_or("must be plan, edit or bypass")
}

pub(super) fn max_cost(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|max| is_cost(*max)).ok_or(BOUNDS_OF_COST)
}

fn time(text: &str) -> Result<String, &'static str> {
    let fits = |time: &Duration| TIMEOUTS.contains(time);
    duration(text).filter(fits).map(|_| text.to_owned()).ok_or("must be 1s to 24h, like 90s, 10m or 2h")
}

fn model(text: &str) -> Result<String, &'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._:/[]-".contains(c);
    let is_model = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 128 && text.chars().all(fits);
    is_model
        .then(|| text.to_owned())
        .ok_or("must be a letter or digit and at most 127 more of A-Z a-z 0-9 . _ : / [ ] -")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::tests::machines;
    use ensemble_account::tasks::{ClearTask, SessionTask};
    use ensemble_plan::{PromptFiles, Seal, Variables, read};
    use ensemble_types::problem::Problem;
    use ensemble_types::runs::{SealedTask, Signed};

    fn draft(text: &str) -> Draft {
        let files = PromptFiles::new(Path::new("/plans"), false);
        read(text, "plan", &files, Path::new("/home/me"), Overrides::default(), &Variables::default()).unwrap()
    }

    #[test]
    fn ids_whose_refs_are_taken_are_drawn_three_times() {
        let refused = |code| Error::Problem(Box::new(Problem::new(code, "no")));
        let mut draws = Draws::default();
        let again: Vec<bool> = (0..4).map(|_| draws.may_draw_again(&refused(Code::Conflict))).collect();
        assert_eq!(again, [true, true, false, false]);
        assert!(!Draws::default().may_draw_again(&refused(Code::IdempotencyMismatch)), "another request has the key");
    }

    #[test]
    fn what_is_drawn_again_is_another_run_of_the_same_plan() {
        let draft = draft(LOCAL);
        let [first, second] = [draft.clone(), draft].map(|draft| draft.create(None, &Unsigned, now()).unwrap());
        assert!(first.id.is_some() && first.id != second.id && first.tasks[0].id != second.tasks[0].id);
    }

    struct Unsigned;

    impl Seal for Unsigned {
        type Error = Failure;

        fn sign(&self, _: &ClearTask) -> Result<Option<Signed>> {
            Ok(None)
        }

        fn seal(&self, _: &MachineId, _: &SessionTask) -> Result<SealedTask> {
            Err(Failure::message("Nothing is sealed."))
        }

        fn machine(&self) -> Option<&MachineId> {
            None
        }
    }

    const LOCAL: &str = "tasks: [{prompt: x, provider: codex}]";
    const ABSOLUTE: &str = "tasks: [{prompt: x, provider: codex, workingDirectory: /a}]";

    #[test]
    fn a_run_is_pinned_to_this_machine_unless_another_is_named() {
        let known = machines(&[("this", "desk"), ("other", "laptop")]);
        let placed = |named, text: &str| place(named, &draft(text), &known).map(|id| id.map(|id| id.to_string()));
        assert_eq!(placed(None, LOCAL).unwrap().as_deref(), Some("this"));
        assert_eq!(placed(None, ABSOLUTE).unwrap().as_deref(), Some("this"));
        assert_eq!(placed(Some("laptop"), LOCAL).unwrap().as_deref(), Some("other"));
        assert_eq!(placed(Some("any"), ABSOLUTE).unwrap(), None);
        let refused = placed(Some("any"), LOCAL).unwrap_err().to_string();
        assert!(refused.contains("/home/me") && refused.contains("absolute workingDirectory"), "{refused}");
        let spread = placed(None, &format!("{{spread: true, {LOCAL}}}")).unwrap_err().to_string();
        assert!(spread.contains("spread: true"), "{spread}");
        let own = "{machineId: other, tasks: [{prompt: x, provider: codex}]}";
        assert_eq!(placed(None, own).unwrap().as_deref(), Some("other"));
        let each = "tasks: [{prompt: x, provider: codex, machineId: other}]";
        assert_eq!(placed(None, each).unwrap(), None);
    }

    #[test]
    fn a_machine_that_is_not_registered_sends_no_directory_of_its_own() {
        let elsewhere = machines(&[("gone", "x"), ("other", "laptop")]).without("gone");
        let refused = place(None, &draft(LOCAL), &elsewhere).unwrap_err().to_string();
        assert!(refused.contains("not registered"), "{refused}");
        assert_eq!(place(None, &draft(ABSOLUTE), &elsewhere).unwrap(), None);
        assert_eq!(place(None, &draft(LOCAL), &Machines::default()).unwrap(), None);
    }
}
