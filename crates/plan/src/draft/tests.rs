//! What plans say, and which mistakes are found.

use std::time::Duration;

use ensemble_protocol::seal::SessionTask;
use ensemble_types::runs::{SealedTask, Signed, TaskSession};
use serde_json::Value;

use super::*;

type Result<T> = std::result::Result<T, Error>;

fn draft(text: &str, overrides: Overrides, variables: &[(&str, &str)]) -> Result<Draft> {
    let values: Vec<_> = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    read(
        text,
        "plan.yaml",
        &PromptFiles::new(Path::new("/plans"), false),
        Path::new("/home/me/project"),
        overrides,
        &Variables::new(&values),
    )
}

/// Seals nothing.
struct NoMachine;

impl Seal for NoMachine {
    type Error = Error;

    fn machine(&self) -> Option<&MachineId> {
        None
    }

    fn seal(&self, _: &MachineId, _: &SessionTask) -> Result<SealedTask> {
        unreachable!("there is no machine")
    }

    fn sign(&self, _: &ClearTask) -> Result<Option<Signed>> {
        Ok(None)
    }
}

/// Seals into plain sight.
struct Clear(MachineId);

impl Seal for Clear {
    type Error = Error;

    fn machine(&self) -> Option<&MachineId> {
        Some(&self.0)
    }

    fn seal(&self, machine: &MachineId, task: &SessionTask) -> Result<SealedTask> {
        Ok(SealedTask::new(format!("{machine} {}", serde_json::to_string(task).unwrap())).unwrap())
    }

    fn sign(&self, _: &ClearTask) -> Result<Option<Signed>> {
        Ok(None)
    }
}

#[test]
fn a_task_that_is_a_session_is_sealed_for_its_machine() {
    let text = "{defaults: {provider: claude, timeout: 10m, permission: edit}, tasks: [\
                {key: a, session: true, prompt: 'say \\{{ it', title: T, model: m, retry: {maxAttempts: 2}}, \
                {session: true, permission: ask, machineId: other, dependsOn: [a], prompt: y}]}";
    let run = draft(text, Overrides::default(), &[])
        .unwrap()
        .create(None, &Clear("here".parse().unwrap()), Timestamp::from_micros(0))
        .unwrap();
    let [first, second] = run.tasks.as_slice() else { panic!("{run:?}") };
    let sealed = first.sealed.as_deref().unwrap().strip_prefix("here ").unwrap();
    let task: SessionTask = serde_json::from_str(sealed).unwrap();
    assert_eq!((task.session, task.prompt.as_deref()), (TaskSession::Turn, Some("say {{ it")));
    assert_eq!((task.working_directory.as_str(), task.mode), ("/home/me/project", Permission::Edit));
    assert_eq!((task.model.as_deref(), task.title.as_deref()), (Some("m"), Some("T")));
    let clear = (&first.prompt, &first.model, &first.working_directory, &first.permission);
    assert_eq!(clear, (&None, &None, &None, &None), "nothing of it is in the clear");
    assert_eq!((first.timeout_ms, first.session), (Some(600_000), Some(TaskSession::Turn)));
    let sealed = second.sealed.as_deref().unwrap();
    assert!(sealed.starts_with("other ") && sealed.contains("\"mode\":\"ask\""), "{sealed}");
    // Without a machine it cannot be sealed.
    let one = "{defaults: {provider: claude}, tasks: [{session: true, prompt: x}]}";
    assert!(plan(one).unwrap_err().to_string().contains("--machine"));
}

/// A server that says that an id is taken may keep each plan that was signed.
#[test]
fn a_plan_that_is_signed_again_is_done_once() {
    let text = "{defaults: {provider: claude}, tasks: [{session: true, permission: ask, prompt: x}]}";
    let draft = draft(text, Overrides::default(), &[]).unwrap();
    let [first, second] = [draft.clone(), draft].map(|draft| {
        let run = draft.create(None, &Clear("here".parse().unwrap()), Timestamp::from_micros(0)).unwrap();
        let sealed = run.tasks[0].sealed.as_deref().unwrap().strip_prefix("here ").unwrap().to_owned();
        serde_json::from_str::<SessionTask>(&sealed).unwrap()
    });
    assert_ne!(first.task_id, second.task_id);
    assert_eq!((first.session_id, first.nonce), (second.session_id, second.nonce));
}

fn plan(text: &str) -> Result<CreateRun> {
    draft(text, Overrides::default(), &[])?.create(None, &NoMachine, Timestamp::from_micros(0))
}

#[test]
fn what_a_task_may_do_comes_from_it_the_command_line_the_defaults_or_the_plan() {
    let text = "{permission: plan, allowedTools: [Read], failOnDenial: true, defaults: {provider: codex}, \
                tasks: [{prompt: x}, {prompt: y, permission: bypass, allowedTools: [], failOnDenial: false}]}";
    let run = plan(text).unwrap();
    let of = |run: &CreateRun, at: usize| run.tasks[at].permission;
    assert_eq!((of(&run, 0), of(&run, 1)), (Some(Permission::Plan), Some(Permission::Bypass)));
    assert_eq!(run.tasks[0].allowed_tools.as_deref(), Some([Text::new("Read").unwrap()].as_slice()));
    assert_eq!(run.tasks[1].allowed_tools.as_deref(), Some([].as_slice()));
    assert_eq!((run.tasks[0].fail_on_denial, run.tasks[1].fail_on_denial), (Some(true), Some(false)));
    let overrides = Overrides { permission: Some(Permission::Edit), ..Overrides::default() };
    let run = draft(text, overrides, &[]).unwrap().create(None, &NoMachine, Timestamp::from_micros(0)).unwrap();
    assert_eq!((of(&run, 0), of(&run, 1)), (Some(Permission::Edit), Some(Permission::Bypass)));
}

#[test]
fn variables_are_filled_in_and_none_is_left_over() {
    let text = "{title: 'on {{vars.what}}', tasks: [{prompt: 'do {{vars.what}}', provider: codex, workingDirectory: 'sub/{{vars.where}}'}]}";
    let fill = |variables: &[(&str, &str)]| draft(text, Overrides::default(), variables);
    let run =
        fill(&[("what", "it"), ("where", "x")]).unwrap().create(None, &NoMachine, Timestamp::from_micros(0)).unwrap();
    assert_eq!((run.tasks[0].prompt.as_deref().unwrap(), run.title.as_deref()), ("do it", Some("on it")));
    assert_eq!(run.tasks[0].working_directory.as_deref(), Some("/home/me/project/sub/x"));
    let unknown = fill(&[("what", "it")]).unwrap_err().to_string();
    assert!(unknown.contains("task number 1") && unknown.contains("--var where="), "{unknown}");
    let unused = fill(&[("what", "it"), ("where", "x"), ("who", "me")]).unwrap_err().to_string();
    assert!(unused.contains("does not use the variable who"), "{unused}");
}

#[test]
fn a_missing_provider_is_filled_in() {
    let draft = draft("tasks: [{prompt: x}, {prompt: y, provider: codex}]", Overrides::default(), &[]).unwrap();
    assert!(draft.needs_provider());
    let run = draft.create(Some(Provider::Gemini), &NoMachine, Timestamp::from_micros(0)).unwrap();
    assert_eq!((run.tasks[0].provider, run.tasks[1].provider), (Provider::Gemini, Provider::Codex));
}

#[test]
fn directories_of_this_machine_are_distinguished() {
    let text = "tasks: [{prompt: x, workingDirectory: /a}, {prompt: y}, {prompt: z, workingDirectory: b}]";
    let draft = draft(text, Overrides::default(), &[]).unwrap();
    assert_eq!(draft.steps.iter().map(|step| step.is_local).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn tasks_take_what_they_do_not_say_from_the_defaults() {
    let run = plan(
        "title: t\ndefaults: {provider: claude, timeout: 10m, workingDirectory: ../other}\n\
         tasks:\n  - {key: a, prompt: x}\n  - {key: b, prompt: y, provider: codex, timeout: 90s, workingDirectory: /tmp, dependsOn: [a]}",
    )
    .unwrap();
    let [a, b] = run.tasks.as_slice() else { panic!("two tasks") };
    assert_eq!((a.provider, a.timeout_ms), (Provider::Claude, Some(600_000)));
    assert_eq!(a.working_directory.as_deref(), Some("/home/me/other"));
    assert_eq!((b.provider, b.timeout_ms), (Provider::Codex, Some(90_000)));
    assert_eq!(b.working_directory.as_deref(), Some("/tmp"));
    assert_eq!(b.depends_on, ["a"]);
}

#[test]
fn without_a_directory_tasks_work_where_the_command_was_typed() {
    let run = plan("tasks: [{prompt: x, provider: gemini}]").unwrap();
    assert_eq!(run.tasks[0].working_directory.as_deref(), Some("/home/me/project"));
}

#[test]
fn mistakes_are_named() {
    for (text, said) in [
        ("tasks: [{promt: x, provider: codex}]", "promt"),
        ("tasks: [{prompt: x}]", "provider"),
        ("tasks: [{provider: codex, key: a}]", "task a: it has no prompt"),
        ("tasks: [{prompt: x, provider: GPT}]", "claude"),
        ("tasks: [{prompt: x, provider: codex, timeout: soon}]", "soon"),
        ("tasks: [{prompt: x, provider: codex, timeout: 25h}]", "1s to 24h"),
        ("hello", "not a plan but a text"),
        ("fix the tests: all of them", "not a plan but a text"),
        ("title: x", "missing field `tasks`"),
        (
            "tasks: [{key: a, prompt: x}, {prompt: '{{tasks.a.result}}', dependsOn: [a]}]",
            "task number 2: {{tasks.a.result}} is no placeholder. Write {{tasks.a.output}}",
        ),
        ("{provider: claude, tasks: [{prompt: x}]}", "`provider` belongs into a task, or into `defaults`"),
        ("{prompt: x, key: a}", "`key` belongs into a task, below `tasks`"),
        ("tasks: [{prompt: x, provider: codex, permission: ask}]", "no one could answer"),
        ("tasks: [{prompt: x, provider: codex, dependsOn: [y]}]", "\"y\" is neither the key nor the position"),
    ] {
        let failure = plan(text).unwrap_err().to_string();
        assert!(failure.contains(said), "{failure}");
    }
}

#[test]
fn deep_nesting_is_refused_at_once() {
    let n = 100_000;
    let directives = (0..n).map(|at| format!("%TAG !a{at}! b\n")).collect();
    for text in ["[".repeat(n), "{a: ".repeat(n), "[a,".repeat(n), "- ".repeat(n), "? ".repeat(n), directives] {
        let begun = std::time::Instant::now();
        let failure = plan(&text).unwrap_err().to_string();
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?} {:?}", &text[..8], begun.elapsed());
        assert!(failure.contains("not a plan"), "{failure}");
    }
}

#[test]
fn brackets_in_prompts_are_no_nesting() {
    let tasks = "- {provider: claude, prompt: \"from 0 to [1, 2, 3) { : ? \"}\n".repeat(1_000);
    assert_eq!(plan(&format!("tasks:\n{tasks}")).unwrap().tasks.len(), 1_000);
}

#[derive(serde::Deserialize)]
struct Vectors {
    good: Vec<Good>,
    bad: Vec<Bad>,
}

#[derive(serde::Deserialize)]
struct Good {
    #[serde(flatten)]
    given: Bad,
    run: serde_json::Map<String, Value>,
    tasks: Vec<Value>,
}

#[derive(serde::Deserialize)]
struct Bad {
    name: String,
    plan: String,
    variables: std::collections::BTreeMap<String, String>,
}

/// The vectors, which the page reads too: `web/tests/unit/plan.test.mjs`.
fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../../tests/vectors/plan.json")).unwrap()
}

fn created(given: &Bad) -> Result<Value> {
    let variables: Vec<_> = given.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let draft = draft(&given.plan, Overrides::default(), &variables)?;
    Ok(serde_json::to_value(draft.create(None, &Clear("desk".parse().unwrap()), Timestamp::from_micros(0))?).unwrap())
}

/// A task of a request, without the members that differ in each request.
fn of_plan(mut task: Value) -> Value {
    let members = task.as_object_mut().unwrap();
    members.remove("id");
    if let Some(retry) = members.get_mut("retry") {
        *retry = serde_json::json!({"maxAttempts": retry["maxAttempts"]});
    }
    if let Some(Value::String(sealed)) = members.remove("sealed") {
        let session: Value = serde_json::from_str(sealed.strip_prefix("desk ").unwrap()).unwrap();
        let of_turn = ["provider", "workingDirectory", "prompt", "title", "mode", "model", "maxCostUsd"];
        let turn = of_turn.iter().filter_map(|name| Some(((*name).to_owned(), session.get(*name)?.clone())));
        members.insert("turn".to_owned(), Value::Object(turn.collect()));
        assert_eq!(members.remove("session"), Some(true.into()));
    }
    task
}

#[test]
fn plans_of_the_vectors_are_what_they_say() {
    let Vectors { good, bad } = vectors();
    for Good { given, run, tasks } in &good {
        let request = created(given).unwrap_or_else(|failure| panic!("{}: {failure}", given.name));
        for name in ["title", "maxConcurrency", "spread"] {
            assert_eq!(request.get(name), run.get(name), "{}: {name}", given.name);
        }
        let found: Vec<Value> = request["tasks"].as_array().unwrap().iter().cloned().map(of_plan).collect();
        assert_eq!(found, *tasks, "{}", given.name);
    }
    for given in &bad {
        assert!(created(given).is_err(), "{}", given.name);
    }
}
