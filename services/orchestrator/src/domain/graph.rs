//! The dependencies between the tasks of a run. A [`TaskGraph`] has no cycle, and all its edges lead to tasks of the run.

use std::collections::HashMap;

use ensemble_types::task_key::is_task_key;

/// For each task, by position: the positions of its dependencies, in the order in which they were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskGraph {
    edges: Vec<Vec<usize>>,
}

/// Why the dependencies of a run are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidGraph {
    #[error("task {task} has the key {key:?} of an earlier task")]
    KeyTaken { task: usize, key: String },
    #[error("{name:?} is neither the key nor the position of a task of this run")]
    Unknown { task: usize, place: usize, name: String },
    #[error("a task cannot depend on itself")]
    SelfDependency { task: usize, place: usize },
    #[error("{name:?} is named twice")]
    Repeated { task: usize, place: usize, name: String },
    /// The names of the tasks of one cycle. The first name is repeated at the end.
    /// A prompt uses the output of this task, which is a session.
    #[error("uses the output of {key:?}, which is a live session and has none")]
    NoOutput { task: usize, key: String },
    #[error("the tasks depend on each other: {}", abbreviate(.0))]
    Cycle(Vec<String>),
}

/// A long cycle is shortened to its beginning and the number of tasks that follow.
fn abbreviate(cycle: &[String]) -> String {
    const SHOWN: usize = 16;
    match cycle.get(..SHOWN).zip(cycle.last()) {
        Some((begin, last)) if cycle.len() > SHOWN + 1 => {
            format!("{} → … ({} more) → {last}", begin.join(" → "), cycle.len() - SHOWN - 1)
        }
        _ => cycle.join(" → "),
    }
}

impl TaskGraph {
    /// `tasks` are the key and the dependencies of each task, as they were submitted.
    pub(crate) fn new<'a>(tasks: &[(Option<&'a str>, &'a [String])]) -> Result<Self, InvalidGraph> {
        let mut by_key: HashMap<&str, usize> = HashMap::with_capacity(tasks.len());
        for (task, (key, _)) in tasks.iter().enumerate() {
            if let Some(key) = key
                && by_key.insert(key, task).is_some()
            {
                return Err(InvalidGraph::KeyTaken { task, key: (*key).to_owned() });
            }
        }
        let mut edges = Vec::with_capacity(tasks.len());
        for (task, (_, names)) in tasks.iter().enumerate() {
            let mut found: Vec<usize> = Vec::with_capacity(names.len());
            for (place, name) in names.iter().enumerate() {
                let target = by_key.get(name.as_str()).copied().or_else(|| position(name, tasks.len()));
                match target {
                    None => return Err(InvalidGraph::Unknown { task, place, name: name.clone() }),
                    Some(target) if target == task => return Err(InvalidGraph::SelfDependency { task, place }),
                    Some(target) if found.contains(&target) => {
                        return Err(InvalidGraph::Repeated { task, place, name: name.clone() });
                    }
                    Some(target) => found.push(target),
                }
            }
            edges.push(found);
        }
        let graph = Self { edges };
        match graph.cycle() {
            None => Ok(graph),
            Some(cycle) => {
                let name = |at: usize| tasks.get(at).and_then(|(key, _)| *key).map_or(at.to_string(), str::to_owned);
                Err(InvalidGraph::Cycle(cycle.into_iter().map(name).collect()))
            }
        }
    }

    /// The positions of the tasks that the task at this position depends on.
    pub(crate) fn dependencies(&self, task: usize) -> &[usize] {
        self.edges.get(task).map_or(&[], Vec::as_slice)
    }

    /// For each task, how many tasks depend on it.
    pub(crate) fn dependents(&self) -> Vec<i32> {
        let mut counts = vec![0; self.edges.len()];
        for &target in self.edges.iter().flatten() {
            if let Some(count) = counts.get_mut(target) {
                *count += 1;
            }
        }
        counts
    }

    /// One cycle, if there is any. Tasks without open dependencies are removed until none is left to remove (Kahn's
    /// algorithm); every task that remains is on a cycle or depends on one.
    fn cycle(&self) -> Option<Vec<usize>> {
        let mut open: Vec<usize> = self.edges.iter().map(Vec::len).collect();
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); self.edges.len()];
        for (task, targets) in self.edges.iter().enumerate() {
            for &target in targets {
                if let Some(list) = waiting.get_mut(target) {
                    list.push(task);
                }
            }
        }
        let mut free: Vec<usize> = open.iter().enumerate().filter(|(_, n)| **n == 0).map(|(at, _)| at).collect();
        while let Some(done) = free.pop() {
            for &task in waiting.get(done).map_or(&[][..], Vec::as_slice) {
                if let Some(count) = open.get_mut(task) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(task);
                    }
                }
            }
        }
        let mut at = open.iter().position(|count| *count > 0)?;
        // Each remaining task depends on another remaining task, so following these edges ends in a cycle.
        let mut path: Vec<usize> = Vec::new();
        let mut place: HashMap<usize, usize> = HashMap::new();
        while !place.contains_key(&at) {
            place.insert(at, path.len());
            path.push(at);
            at = *self.dependencies(at).iter().find(|target| open.get(**target).is_some_and(|count| *count > 0))?;
        }
        let mut cycle = path.split_off(*place.get(&at)?);
        cycle.push(at);
        Some(cycle)
    }
}

/// A zero-based position, written without a sign or leading zeros.
fn position(name: &str, tasks: usize) -> Option<usize> {
    let plain =
        !is_task_key(name) && name.bytes().all(|b| b.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    name.parse().ok().filter(|at| plain && *at < tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(plan: &[(&str, &[&str])]) -> Result<TaskGraph, InvalidGraph> {
        let names: Vec<Vec<String>> =
            plan.iter().map(|(_, names)| names.iter().map(|name| (*name).to_owned()).collect()).collect();
        let tasks: Vec<(Option<&str>, &[String])> = plan
            .iter()
            .zip(&names)
            .map(|((key, _), names)| ((!key.is_empty()).then_some(*key), names.as_slice()))
            .collect();
        TaskGraph::new(&tasks)
    }

    #[test]
    fn dependencies_are_named_by_key_or_by_position() {
        let graph = graph(&[("a", &[]), ("", &["a"]), ("c", &["1", "a"])]).unwrap();
        assert_eq!(graph.dependencies(2), [1, 0]);
        assert_eq!(graph.dependents(), [2, 1, 0]);
    }

    #[test]
    fn unknown_own_and_repeated_names_are_refused() {
        for name in ["b", "2", "00", "01", "+1", "-1", "", " 0", "0x0"] {
            assert!(
                matches!(graph(&[("a", &[]), ("", &[name])]), Err(InvalidGraph::Unknown { task: 1, .. })),
                "{name}"
            );
        }
        assert!(matches!(graph(&[("a", &["a"])]), Err(InvalidGraph::SelfDependency { .. })));
        assert!(matches!(graph(&[("a", &["0"])]), Err(InvalidGraph::SelfDependency { .. })));
        assert!(matches!(graph(&[("a", &[]), ("b", &["a", "0"])]), Err(InvalidGraph::Repeated { place: 1, .. })));
        assert!(matches!(graph(&[("a", &[]), ("a", &[])]), Err(InvalidGraph::KeyTaken { task: 1, .. })));
    }

    #[test]
    fn the_tasks_of_a_cycle_are_named() {
        let cycle = |plan| match graph(plan) {
            Err(InvalidGraph::Cycle(names)) => names,
            other => panic!("{other:?}"),
        };
        assert_eq!(cycle(&[("a", &["b"]), ("b", &["a"])]), ["a", "b", "a"]);
        assert_eq!(cycle(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["b"])]), ["b", "c", "d", "b"]);
        assert_eq!(cycle(&[("", &["1"]), ("", &["0"])]), ["0", "1", "0"]);
        let names: Vec<String> = (0..9_000).chain([0]).map(|n| n.to_string()).collect();
        let text = InvalidGraph::Cycle(names).to_string();
        assert!(text.ends_with("15 → … (8984 more) → 0"), "{text}");
    }

    #[test]
    fn a_long_chain_is_accepted() {
        let names: Vec<Vec<String>> =
            (0..10_000).map(|at: usize| at.checked_sub(1).map(|to| to.to_string()).into_iter().collect()).collect();
        let tasks: Vec<(Option<&str>, &[String])> = names.iter().map(|names| (None, names.as_slice())).collect();
        assert_eq!(TaskGraph::new(&tasks).unwrap().dependencies(9_999), [9_998]);
    }

    #[test]
    fn a_cycle_of_more_than_sixteen_tasks_is_shortened() {
        let text = |count: usize| {
            let names: Vec<String> = (0..count).map(|n| n.to_string()).chain(["0".to_owned()]).collect();
            InvalidGraph::Cycle(names).to_string()
        };
        assert!(text(16).ends_with("14 → 15 → 0"), "{}", text(16));
        assert!(text(17).ends_with("14 → 15 → … (1 more) → 0"), "{}", text(17));
    }

    #[test]
    fn tasks_before_and_after_a_cycle_are_not_named_in_it() {
        let plan: [(&str, &[&str]); 4] = [("before", &[]), ("a", &["before", "b"]), ("b", &["a"]), ("after", &["b"])];
        let Err(InvalidGraph::Cycle(names)) = graph(&plan) else { panic!("no cycle") };
        assert_eq!(names, ["a", "b", "a"]);
        let plan: [(&str, &[&str]); 4] = [("first", &[]), ("second", &["first"]), ("a", &["b"]), ("b", &["a"])];
        let Err(InvalidGraph::Cycle(names)) = graph(&plan) else { panic!("no cycle") };
        assert_eq!(names, ["a", "b", "a"], "what comes first need not lead to the cycle");
        let diamond: [(&str, &[&str]); 4] = [("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])];
        assert_eq!(graph(&diamond).unwrap().dependents(), [2, 1, 1, 0]);
    }

    #[test]
    fn positions_end_with_the_last_task() {
        assert!(graph(&[("", &[]), ("", &["0"])]).is_ok());
        assert!(matches!(graph(&[("", &[]), ("", &["2"])]), Err(InvalidGraph::Unknown { place: 0, .. })));
        let ten: Vec<(&str, &[&str])> = (0..11).map(|at| ("", if at == 0 { &["10"][..] } else { &[][..] })).collect();
        assert_eq!(graph(&ten).unwrap().dependencies(0), [10]);
    }
}
