//! The table of lies, `tests/lies.json`: what a server changes of its answers, and what programs do then. The tests of the TypeScript client
//! read the same table.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::lying::LyingServer;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// Words of its row in `docs/THREATS.md`.
    threat: String,
    /// The programs that are lied to.
    programs: Vec<String>,
    /// What a person does, or what the server passes on to a machine.
    when: String,
    /// What is changed of the answers to these requests, or of each event of a stream. `{name}` stands for a text of the cast, `*` for any
    /// part of a path. Empty: the lie is what the server passes on.
    #[serde(default)]
    answers: BTreeMap<String, Vec<Change>>,
    /// The status with which these requests are refused. They do not reach the real server.
    #[serde(default)]
    refuses: BTreeMap<String, u16>,
    pub(crate) expect: Expect,
    /// What the command line says.
    #[serde(default)]
    pub(crate) says: String,
}

/// What a program does that is lied to.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Expect {
    /// It ends with an error, and nothing was written.
    Refused,
    /// It writes nothing. It may read.
    NotWritten,
    /// It does what it does without the lie.
    Ignored,
    /// It does not show what the lie says, and nothing is found by it.
    NotShown,
}

/// A change of one place of an answer, or of several: `*` stands for every item, `-1` for the last one. One of `set`, `add` and `remove`.
/// `$name` is a value of the cast.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    at: String,
    #[serde(default, deserialize_with = "also_null")]
    set: Option<Value>,
    add: Option<Vec<Value>>,
    #[serde(default)]
    remove: bool,
    /// Only of an answer that has these members.
    #[serde(default)]
    only: BTreeMap<String, Value>,
}

fn also_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// How many scenarios are tried at once, each with a server that tells no lies to the others.
const AT_ONCE: usize = 3;

/// What a scenario has prepared for its lies.
pub(crate) type Cast = BTreeMap<&'static str, Value>;
/// Tries these rows.
pub(crate) type Scenario = fn(&LyingServer, &[Row]);

/// Tells every lie of the table that is for this program. Each row has a scenario, and each scenario a row.
pub(crate) fn tell_all(program: &str, scenarios: &[(&str, Scenario)]) {
    let read = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let table: Vec<Row> = serde_json::from_str(&read("../../tests/lies.json")).unwrap();
    let threats = read("../../docs/THREATS.md");
    let mut of: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in table {
        let names = |line: &str| line.contains(&row.threat) && line.contains(&format!("`{}`", row.id));
        assert!(threats.lines().any(names), "its row in THREATS does not name {}", row.id);
        if row.programs.iter().any(|name| name == program) {
            of.entry(row.when.clone()).or_default().push(row);
        }
    }
    let mut rows = |when: &str| of.remove(when).unwrap_or_else(|| panic!("no row for: {when}"));
    let waiting: VecDeque<_> = scenarios.iter().map(|(when, scenario)| (*when, scenario, rows(when))).collect();
    let left: Vec<&String> = of.keys().collect();
    assert!(left.is_empty(), "{program} has no scenario for: {left:?}");
    let (waiting, failed) = (Mutex::new(waiting), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let server = LyingServer::start();
                let next = || waiting.lock().unwrap().pop_front();
                while let Some((when, scenario, rows)) = next() {
                    if catch_unwind(AssertUnwindSafe(|| scenario(&server, &rows))).is_err() {
                        failed.lock().unwrap().push(when);
                    }
                    server.tell_the_truth();
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
}

impl Row {
    /// Tells this lie while `tries` runs.
    pub(crate) fn tell<T>(&self, server: &LyingServer, cast: &Cast, tries: impl FnOnce() -> T) -> T {
        self.tell_to("", server, cast, tries)
    }

    /// The same to programs whose `User-Agent` begins like this.
    pub(crate) fn tell_to<T>(
        &self,
        agent: &'static str,
        server: &LyingServer,
        cast: &Cast,
        tries: impl FnOnce() -> T,
    ) -> T {
        // What a failing test prints.
        println!("{}: {}", self.when, self.id);
        let filled = |route: &String| {
            cast.iter().fold(route.clone(), |route, (name, value)| match value {
                Value::String(text) => route.replace(&format!("{{{name}}}"), text),
                _ => route,
            })
        };
        let refuses: Vec<(String, u16)> = self.refuses.iter().map(|(route, status)| (filled(route), *status)).collect();
        let answers: Vec<(String, Vec<Step>)> = self
            .answers
            .iter()
            .map(|(route, changes)| (filled(route), changes.iter().map(|change| change.with(cast)).collect()))
            .collect();
        server.lie_to(agent, move |line, answer| {
            let steps = answers.iter().filter(|(route, _)| is_route(line, route)).flat_map(|(_, steps)| steps);
            let shown = answer.clone();
            let steps = steps.filter(|step| step.only.iter().all(|(name, value)| shown[name] == *value));
            steps.for_each(|step| change(answer, &step.at, &step.to));
        });
        server.refuse_with(move |line| {
            let (_, status) = refuses.iter().find(|(route, _)| is_route(line, route))?;
            Some((*status, problem(*status)))
        });
        let result = tries();
        assert!(!server.lied().is_empty(), "{} was not used: {:?}", self.id, server.requests());
        server.tell_the_truth();
        result
    }
}

/// The body of a refusal.
pub(crate) fn problem(status: u16) -> Value {
    let code = if status == 404 { "NOT_FOUND" } else { "INTERNAL" };
    json!({"type": "about:blank", "title": "No", "status": status, "code": code, "detail": "No."})
}

fn is_route(line: &str, route: &str) -> bool {
    let line = line.split('?').next().unwrap_or_default();
    let (mut parts, mut wanted) = (line.split('/'), route.split('/'));
    loop {
        match (parts.next(), wanted.next()) {
            (None, None) => return true,
            (Some(part), Some(wanted)) if part == wanted || wanted == "*" => {}
            _ => return false,
        }
    }
}

/// A change with the values of the cast.
struct Step {
    only: BTreeMap<String, Value>,
    at: Vec<String>,
    to: To,
}

enum To {
    Set(Value),
    Add(Vec<Value>),
    Removed,
}

impl Change {
    fn with(&self, cast: &Cast) -> Step {
        let value = |value: &Value| match value.as_str().and_then(|text| text.strip_prefix('$')) {
            Some(name) => cast.get(name).unwrap_or_else(|| panic!("the cast has no {name}")).clone(),
            None => value.clone(),
        };
        let to = match (&self.set, &self.add) {
            (Some(set), None) => To::Set(value(set)),
            (None, Some(add)) => To::Add(add.iter().map(value).collect()),
            (None, None) if self.remove => To::Removed,
            _ => panic!("one of set, add and remove"),
        };
        let only = self.only.iter().map(|(name, one)| (name.clone(), value(one))).collect();
        Step { only, at: self.at.split('/').skip(1).map(str::to_owned).collect(), to }
    }
}

fn change(value: &mut Value, at: &[String], to: &To) {
    let Some((name, rest)) = at.split_first() else {
        match to {
            To::Set(new) => *value = new.clone(),
            To::Add(more) => value.as_array_mut().unwrap().extend(more.iter().cloned()),
            To::Removed => unreachable!("an answer is not removed"),
        }
        return;
    };
    let is_removed = rest.is_empty() && matches!(to, To::Removed);
    match value {
        Value::Array(items) if name == "*" => items.iter_mut().for_each(|item| change(item, rest, to)),
        Value::Array(items) if is_removed => drop(items.pop()),
        Value::Array(items) => {
            let index = if name == "-1" { items.len().checked_sub(1) } else { name.parse().ok() };
            index.and_then(|index| items.get_mut(index)).into_iter().for_each(|item| change(item, rest, to));
        }
        Value::Object(members) if is_removed => drop(members.remove(name)),
        Value::Object(members) if rest.is_empty() => change(members.entry(name).or_insert(Value::Null), rest, to),
        Value::Object(members) => members.get_mut(name).into_iter().for_each(|member| change(member, rest, to)),
        _ => {}
    }
}
