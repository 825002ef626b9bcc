//! A plan that was read and checked, but not yet placed: its machine, and a provider that no task names, are decided later.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use ensemble_types::ids::{MachineId, TaskId};
use ensemble_types::line::short;
use ensemble_types::placeholders::{doubtful, misspelt};
use ensemble_types::runs::{CreateRun, CreateTask, Isolation, Permission, Provider, RetryPolicy};
use ensemble_types::signatures::ClearTask;
use ensemble_types::text::Text;
use ensemble_types::time::Timestamp;

use super::fields::{absolute, checked_cost, doing_tasks, filled, milliseconds, optional, tools};
use super::file::{Defaults, Plan, Task, parse};
use super::ids::Ids;
use super::{Error, PromptFiles, Seal, Variables, cost, order, sessions};

/// A plan that can be submitted once its machine and its provider are known.
#[derive(Clone, Debug)]
pub struct Draft {
    name: String,
    pub title: Option<Text<0, 256>>,
    pub max_concurrency: Option<u32>,
    pub spread: Option<bool>,
    pub machine: Option<MachineId>,
    /// As they were written.
    pub steps: Vec<Step>,
    /// The positions of the steps, each after its dependencies.
    pub order: Vec<usize>,
}

/// One task of a draft.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its key or its number.
    pub called: String,
    pub provider: Option<Provider>,
    /// The directory does not come from an absolute path in the plan, so it is one of this machine.
    pub is_local: bool,
    pub directory: Text<1, 4_096>,
    pub machine: Option<MachineId>,
    pub depends_on: Vec<String>,
    pub(super) once: sessions::Once,
    /// It is the first turn of a live session.
    pub(super) is_session: bool,
    pub(super) prompt: Text<1, 65_536>,
    pub(super) model: Option<Text<1, 128>>,
    pub(super) key: Option<Text<1, 64>>,
    pub(super) title: Option<Text<0, 256>>,
    pub(super) timeout: Option<u64>,
    pub(super) retry: Option<RetryPolicy>,
    pub permission: Option<Permission>,
    pub(super) allowed_tools: Option<Vec<Text<1, 256>>>,
    pub(super) fail_on_denial: Option<bool>,
    pub isolation: Option<Isolation>,
    pub base: Option<Text<1, 200>>,
    pub(super) max_cost_usd: Option<f64>,
    /// What is not wrong, but may have been meant otherwise.
    pub odd: Vec<String>,
}

/// The most oddities of a task that are named.
const MOST_ODD: usize = 3;
const ODD: &str = "stays as it is. Placeholders are {{tasks.KEY.output}} and {{vars.NAME}}.";

/// Values from the command line that replace the plan's defaults.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub provider: Option<Provider>,
    pub model: Option<String>,
    pub permission: Option<Permission>,
    pub timeout: Option<String>,
    pub isolation: Option<Isolation>,
    pub max_cost_usd: Option<f64>,
}

/// Reads a plan. `name` is used in messages. Working directories are relative to `here`.
pub fn read(
    text: &str,
    name: &str,
    files: &PromptFiles<'_>,
    here: &Path,
    overrides: Overrides,
    variables: &Variables,
) -> Result<Draft, Error> {
    let failed = |what: String| Error::Wrong(format!("{name}: {what}."));
    let (mut plan, tasks) = take_tasks(parse(text, name)?);
    if tasks.is_empty() {
        return Err(failed("it has no tasks".to_owned()));
    }
    plan.defaults = with_overrides(&plan, overrides);
    let mut steps = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.into_iter().enumerate() {
        let called = task.key.clone().unwrap_or_else(|| format!("number {}", at + 1));
        let step = step(task, &called, &plan.defaults, files, here, variables);
        steps.push(step.map_err(|what| failed(format!("task {called}: {what}")))?);
    }
    let title = plan.title.map(|title| variables.fill(&title)).transpose().map_err(failed)?;
    let title = optional(title).map_err(|what| failed(format!("the title {what}")))?;
    if let Some(unused) = variables.unused().first() {
        return Err(failed(format!("it does not use the variable {unused}: {{{{vars.{unused}}}}} is nowhere in it")));
    }
    let keys: Vec<_> = steps
        .iter()
        .map(|step| order::Named {
            key: step.key.as_deref(),
            called: &step.called,
            depends_on: &step.depends_on,
            prompt: &step.prompt,
            is_session: step.is_session,
        })
        .collect();
    let order = order::sort(&keys).map_err(failed)?;
    let of_plan: HashSet<&str> = steps.iter().filter_map(|step| step.key.as_deref()).collect();
    for step in &steps {
        if let Some((wrong, meant)) = misspelt(&step.prompt, |key| of_plan.contains(key)) {
            let literal = "\\{{ for braces that stay as they are";
            let called = &step.called;
            return Err(failed(format!("task {called}: {wrong} is no placeholder. Write {meant}, or {literal}")));
        }
    }
    Ok(Draft {
        name: name.to_owned(),
        title,
        max_concurrency: plan.max_concurrency,
        spread: plan.spread,
        machine: plan.machine_id,
        steps,
        order,
    })
}

fn take_tasks(mut plan: Plan) -> (Plan, Vec<Task>) {
    let tasks = std::mem::take(&mut plan.tasks);
    (plan, tasks)
}

/// The plan's defaults. The command line comes first, then `defaults`, then the plan itself.
fn with_overrides(plan: &Plan, overrides: Overrides) -> Defaults {
    let defaults = &plan.defaults;
    let (timeout, timeout_ms) = match overrides.timeout {
        Some(timeout) => (Some(timeout), None),
        None => (defaults.timeout.clone(), defaults.timeout_ms),
    };
    Defaults {
        provider: overrides.provider.or(defaults.provider),
        model: overrides.model.or_else(|| defaults.model.clone()),
        working_directory: defaults.working_directory.clone(),
        machine_id: defaults.machine_id.clone(),
        timeout,
        timeout_ms,
        retry: defaults.retry,
        permission: overrides.permission.or(defaults.permission).or(plan.permission),
        allowed_tools: defaults.allowed_tools.clone().or_else(|| plan.allowed_tools.clone()),
        fail_on_denial: defaults.fail_on_denial.or(plan.fail_on_denial),
        isolation: overrides.isolation.or(defaults.isolation),
        max_cost_usd: overrides.max_cost_usd.or(defaults.max_cost_usd).or(plan.max_cost_usd),
    }
}

fn step(
    task: Task,
    called: &str,
    defaults: &Defaults,
    files: &PromptFiles<'_>,
    here: &Path,
    variables: &Variables,
) -> Result<Step, String> {
    let prompt = match (task.prompt, task.prompt_file) {
        (Some(prompt), None) => prompt,
        (None, Some(file)) => files.read(&file)?,
        (None, None) => return Err("it has no prompt and no promptFile".to_owned()),
        (Some(_), Some(_)) => return Err("it has both a prompt and a promptFile".to_owned()),
    };
    let odd = doubtful(&prompt).take(MOST_ODD).map(|odd| format!("task {called}: {odd} {ODD}")).collect();
    let prompt = variables.fill_prompt(&prompt)?;
    let title = task.title.map(|title| variables.fill(&title)).transpose()?;
    let directory = task.working_directory.as_ref().or(defaults.working_directory.as_ref());
    let directory = directory.map(|directory| filled(directory, variables)).transpose()?;
    let timeout = match (task.timeout, task.timeout_ms) {
        (None, None) => milliseconds(defaults.timeout.as_deref(), defaults.timeout_ms)?,
        (text, number) => milliseconds(text.as_deref(), number)?,
    };
    let permission = task.permission.or(defaults.permission);
    let is_session = task.session == Some(true);
    if permission == Some(Permission::Ask) && !is_session {
        return Err(
            "no one could answer with the permission ask. Use plan, edit or bypass, or `session: true`".to_owned()
        );
    }
    let step = Step {
        called: called.to_owned(),
        once: sessions::Once::draw(),
        is_session,
        provider: doing_tasks(task.provider.or(defaults.provider))?,
        is_local: directory.as_ref().is_none_or(|directory| !directory.is_absolute()),
        directory: absolute(here, directory.as_deref())?,
        machine: task.machine_id.or_else(|| defaults.machine_id.clone()),
        depends_on: task.depends_on,
        prompt: Text::new(prompt).map_err(|error| format!("the prompt {error}"))?,
        model: optional(task.model.or_else(|| defaults.model.clone())).map_err(|what| format!("the model {what}"))?,
        key: optional(task.key).map_err(|what| format!("the key {what}"))?,
        title: optional(title).map_err(|what| format!("the title {what}"))?,
        timeout,
        retry: task.retry.or(defaults.retry),
        permission,
        allowed_tools: tools(task.allowed_tools.or_else(|| defaults.allowed_tools.clone()))?,
        fail_on_denial: task.fail_on_denial.or(defaults.fail_on_denial),
        isolation: task.isolation.or(defaults.isolation),
        base: optional(task.base).map_err(|what| format!("the base {what}"))?,
        max_cost_usd: checked_cost(task.max_cost_usd.or(defaults.max_cost_usd))?,
        odd,
    };
    if is_session {
        sessions::check(&step)?;
    }
    Ok(step)
}

impl Draft {
    /// A plan of one prompt that is done in `directory`.
    pub fn of_prompt(prompt: &str, directory: &Path, is_local: bool, overrides: Overrides) -> Result<Self, Error> {
        let failed = |what: String| Error::Wrong(format!("{what}."));
        // The server replaces placeholders in prompts. A prompt that was typed has none.
        let is_plain =
            !prompt.contains("{{tasks.") && !prompt.contains("\\{{") && misspelt(prompt, |_| false).is_none();
        let literal = if is_plain { prompt.to_owned() } else { prompt.replace("{{", "\\{{") };
        let step = Step {
            called: "number 1".to_owned(),
            once: sessions::Once::draw(),
            is_session: false,
            provider: doing_tasks(overrides.provider).map_err(failed)?,
            is_local,
            directory: absolute(directory, None).map_err(failed)?,
            machine: None,
            depends_on: Vec::new(),
            prompt: Text::new(literal).map_err(|error| failed(format!("The prompt {error}")))?,
            model: optional(overrides.model).map_err(|what| failed(format!("The model {what}")))?,
            key: None,
            title: None,
            timeout: milliseconds(overrides.timeout.as_deref(), None).map_err(failed)?,
            retry: None,
            permission: overrides.permission,
            allowed_tools: None,
            fail_on_denial: None,
            isolation: overrides.isolation,
            base: None,
            max_cost_usd: checked_cost(overrides.max_cost_usd).map_err(failed)?,
            odd: Vec::new(),
        };
        Ok(Self {
            name: "The prompt".to_owned(),
            title: Text::new(short(prompt, 80)).ok(),
            max_concurrency: None,
            spread: None,
            machine: None,
            steps: vec![step],
            order: vec![0],
        })
    }

    /// Patterns of tools that all tasks may use beyond their own.
    pub fn allow_tools(&mut self, patterns: &[String]) -> Result<(), Error> {
        let more = tools(Some(patterns.to_vec())).map_err(|what| Error::Wrong(format!("{what}.")))?;
        for step in self.steps.iter_mut().filter(|_| !patterns.is_empty()) {
            step.allowed_tools.get_or_insert_default().extend(more.iter().flatten().cloned());
        }
        Ok(())
    }

    /// Puts ids in place of the names and refs of machines.
    pub fn name_machines<E>(&mut self, find: impl Fn(&str) -> Result<MachineId, E>) -> Result<(), E> {
        for machine in self.machine.iter_mut().chain(self.steps.iter_mut().filter_map(|step| step.machine.as_mut())) {
            *machine = find(machine.as_str())?;
        }
        Ok(())
    }

    /// Which limits of cost are not kept.
    pub fn unkept(&self) -> impl Iterator<Item = String> {
        let limited = self.steps.iter().filter(|step| step.max_cost_usd.is_some()).filter_map(|step| step.provider);
        let silent: BTreeSet<_> = limited.filter(|provider| !cost::is_reported(*provider)).collect();
        silent
            .into_iter()
            .map(|provider| format!("maxCostUsd is not kept with {provider}, which does not report what it costs."))
    }

    /// What is not wrong, and may be a surprise.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let without = self.steps.iter().find(|step| step.provider.is_none()).map(|step| {
            format!(
                "task {} has no provider. The run begins only where one provider alone is offered, or with --provider.",
                step.called
            )
        });
        self.odd().cloned().chain(self.unkept()).chain(without)
    }

    /// What may have been meant otherwise.
    pub fn odd(&self) -> impl Iterator<Item = &String> {
        self.steps.iter().flat_map(|step| &step.odd)
    }

    /// Whether a task has no provider.
    pub fn needs_provider(&self) -> bool {
        self.steps.iter().any(|step| step.provider.is_none())
    }

    /// The request, signed `now`. `provider` is for tasks that do not name one.
    pub fn create<S: Seal>(self, provider: Option<Provider>, by: &S, now: Timestamp) -> Result<CreateRun, S::Error> {
        let name = self.name;
        let ids = Ids::new(self.title.as_deref(), &self.steps);
        let steps = self.steps.into_iter().zip(&ids.tasks).zip(0..);
        let tasks = steps.map(|((step, id), at)| match step.provider.or(provider) {
            Some(provider) if step.is_session => step.sealed(provider, by, (ids.run, *id), now),
            Some(provider) => step.create(provider, by, &ids, (*id, at), now),
            None => Err(S::Error::from(Error::Wrong(format!(
                "{name}: task {}: it has no provider: claude, codex or gemini. Name one in the plan or with --provider.",
                step.called
            )))),
        });
        Ok(CreateRun {
            id: Some(ids.run),
            tasks: tasks.collect::<Result<_, S::Error>>()?,
            title: self.title,
            max_concurrency: self.max_concurrency,
            spread: self.spread,
            machine_id: by.machine().cloned(),
            permission: None,
            allowed_tools: None,
            max_cost_usd: None,
        })
    }
}

/// The id of a task and its place in its run.
type At = (TaskId, u32);

impl Step {
    fn create<S: Seal>(
        self,
        provider: Provider,
        by: &S,
        ids: &Ids,
        (id, position): At,
        at: Timestamp,
    ) -> Result<CreateTask, S::Error> {
        let task = ClearTask {
            run_id: ids.run,
            task_id: id,
            run_title: ids.title.clone(),
            title: self.title.as_ref().map(|title| title.to_string()),
            task_key: self.key.as_ref().map(|key| key.to_string()),
            position: Some(position),
            prompt: self.prompt.to_string(),
            provider,
            model: self.model.as_ref().map(|model| model.to_string()),
            working_directory: Some(self.directory.to_string()),
            permission: self.permission,
            allowed_tools: self.allowed_tools.iter().flatten().map(|tool| tool.to_string()).collect(),
            isolation: self.isolation.unwrap_or_default(),
            depends_on: ids.outputs(&self.prompt),
            base: self.base.as_ref().map(|base| ids.base(base)),
            machine_id: self.machine.as_ref().or(by.machine()).cloned(),
            nonce: self.once.nonce,
            at,
            expires: at.plus(sessions::GOOD_FOR),
        };
        let (signature, signed_body) = by.sign(&task)?.map(|signed| (signed.signature, signed.signed_body)).unzip();
        Ok(CreateTask {
            id: Some(id),
            signature,
            signed_body,
            prompt: Some(self.prompt),
            model: self.model,
            working_directory: Some(self.directory),
            depends_on: self.depends_on,
            task_key: self.key,
            title: self.title,
            machine_id: self.machine,
            timeout_ms: self.timeout,
            retry: self.retry,
            permission: self.permission,
            allowed_tools: self.allowed_tools,
            fail_on_denial: self.fail_on_denial,
            isolation: self.isolation,
            base: self.base,
            max_cost_usd: self.max_cost_usd,
            ..CreateTask::of(provider)
        })
    }
}

#[cfg(test)]
mod tests;
