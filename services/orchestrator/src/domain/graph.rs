//! Which task waits for which. What exists as a [`TaskGraph`] has no circle and no loose end.

use std::collections::HashMap;

use super::draft::is_task_key;

/// For each task, by position, the positions of those it waits for, in the order they were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskGraph {
    edges: Vec<Vec<usize>>,
}

/// Why a plan is not a graph of tasks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadGraph {
    #[error("task {task} has the key {key:?} of an earlier task")]
    KeyTaken { task: usize, key: String },
    #[error("{name:?} is neither the key nor the position of a task of this run")]
    Unknown { task: usize, place: usize, name: String },
    #[error("a task cannot wait for itself")]
    Own { task: usize, place: usize },
    #[error("{name:?} is named twice")]
    Repeated { task: usize, place: usize, name: String },
    /// The names of the tasks of one circle, the first one again at its end.
    #[error("the tasks wait for each other: {}", in_short(.0))]
    Cycle(Vec<String>),
}

/// A circle as a sentence bears it: of a long one its beginning and how many follow.
fn in_short(circle: &[String]) -> String {
    const SHOWN: usize = 16;
    match circle.get(..SHOWN).zip(circle.last()) {
        Some((begin, last)) if circle.len() > SHOWN + 1 => {
            format!("{} → … ({} more) → {last}", begin.join(" → "), circle.len() - SHOWN - 1)
        }
        _ => circle.join(" → "),
    }
}

impl TaskGraph {
    /// `tasks` are the key and the dependencies of each task, as they were submitted.
    pub(crate) fn new<'a>(tasks: &[(Option<&'a str>, &'a [String])]) -> Result<Self, BadGraph> {
        let mut by_key: HashMap<&str, usize> = HashMap::with_capacity(tasks.len());
        for (task, (key, _)) in tasks.iter().enumerate() {
            if let Some(key) = key
                && by_key.insert(key, task).is_some()
            {
                return Err(BadGraph::KeyTaken { task, key: (*key).to_owned() });
            }
        }
        let mut edges = Vec::with_capacity(tasks.len());
        for (task, (_, names)) in tasks.iter().enumerate() {
            let mut found: Vec<usize> = Vec::with_capacity(names.len());
            for (place, name) in names.iter().enumerate() {
                let target = by_key.get(name.as_str()).copied().or_else(|| position(name, tasks.len()));
                match target {
                    None => return Err(BadGraph::Unknown { task, place, name: name.clone() }),
                    Some(target) if target == task => return Err(BadGraph::Own { task, place }),
                    Some(target) if found.contains(&target) => {
                        return Err(BadGraph::Repeated { task, place, name: name.clone() });
                    }
                    Some(target) => found.push(target),
                }
            }
            edges.push(found);
        }
        let graph = Self { edges };
        match graph.circle() {
            None => Ok(graph),
            Some(circle) => {
                let name = |at: usize| tasks.get(at).and_then(|(key, _)| *key).map_or(at.to_string(), str::to_owned);
                Err(BadGraph::Cycle(circle.into_iter().map(name).collect()))
            }
        }
    }

    /// What the task at this position waits for.
    pub(crate) fn dependencies(&self, task: usize) -> &[usize] {
        self.edges.get(task).map_or(&[], Vec::as_slice)
    }

    /// How many tasks wait for each.
    pub(crate) fn dependents(&self) -> Vec<i32> {
        let mut counts = vec![0; self.edges.len()];
        for &target in self.edges.iter().flatten() {
            if let Some(count) = counts.get_mut(target) {
                *count += 1;
            }
        }
        counts
    }

    /// One circle, if there is any: takes away what waits for nothing, again and again; what is left waits in circles.
    fn circle(&self) -> Option<Vec<usize>> {
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
        // Whoever is left waits for another that is left, so following them comes back to where it was.
        let mut path: Vec<usize> = Vec::new();
        let mut place: HashMap<usize, usize> = HashMap::new();
        while !place.contains_key(&at) {
            place.insert(at, path.len());
            path.push(at);
            at = *self.dependencies(at).iter().find(|target| open.get(**target).is_some_and(|count| *count > 0))?;
        }
        let mut circle = path.split_off(*place.get(&at)?);
        circle.push(at);
        Some(circle)
    }
}

/// A zero-based position, written without signs or leading zeros.
fn position(name: &str, tasks: usize) -> Option<usize> {
    let plain =
        !is_task_key(name) && name.bytes().all(|b| b.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    name.parse().ok().filter(|at| plain && *at < tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(plan: &[(&str, &[&str])]) -> Result<TaskGraph, BadGraph> {
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
    fn loose_ends_are_refused() {
        for name in ["b", "2", "00", "01", "+1", "-1", "", " 0", "0x0"] {
            assert!(matches!(graph(&[("a", &[]), ("", &[name])]), Err(BadGraph::Unknown { task: 1, .. })), "{name}");
        }
        assert!(matches!(graph(&[("a", &["a"])]), Err(BadGraph::Own { .. })));
        assert!(matches!(graph(&[("a", &["0"])]), Err(BadGraph::Own { .. })));
        assert!(matches!(graph(&[("a", &[]), ("b", &["a", "0"])]), Err(BadGraph::Repeated { place: 1, .. })));
        assert!(matches!(graph(&[("a", &[]), ("a", &[])]), Err(BadGraph::KeyTaken { task: 1, .. })));
    }

    #[test]
    fn a_circle_is_named() {
        let circle = |plan| match graph(plan) {
            Err(BadGraph::Cycle(names)) => names,
            other => panic!("{other:?}"),
        };
        assert_eq!(circle(&[("a", &["b"]), ("b", &["a"])]), ["a", "b", "a"]);
        assert_eq!(circle(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["b"])]), ["b", "c", "d", "b"]);
        assert_eq!(circle(&[("", &["1"]), ("", &["0"])]), ["0", "1", "0"]);
        let names: Vec<String> = (0..9_000).chain([0]).map(|n| n.to_string()).collect();
        let told = BadGraph::Cycle(names).to_string();
        assert!(told.ends_with("15 → … (8984 more) → 0"), "{told}");
    }

    #[test]
    fn a_long_chain_is_no_trouble() {
        let names: Vec<Vec<String>> =
            (0..10_000).map(|at: usize| at.checked_sub(1).map(|to| to.to_string()).into_iter().collect()).collect();
        let tasks: Vec<(Option<&str>, &[String])> = names.iter().map(|names| (None, names.as_slice())).collect();
        assert_eq!(TaskGraph::new(&tasks).unwrap().dependencies(9_999), [9_998]);
    }
}
