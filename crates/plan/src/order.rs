//! The order of the tasks of a plan. Finds the mistakes in dependencies that the server would refuse.

use std::collections::HashMap;

use ensemble_types::template::Template;

/// What the order depends on.
pub(super) struct Named<'a> {
    pub(super) key: Option<&'a str>,
    pub(super) called: &'a str,
    pub(super) depends_on: &'a [String],
    pub(super) prompt: &'a str,
    pub(super) is_session: bool,
}

/// The positions of the tasks, each after its dependencies.
pub(super) fn sort(tasks: &[Named<'_>]) -> Result<Vec<usize>, String> {
    let mut keys = HashMap::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        if let Some(key) = task.key.filter(|key| keys.insert(*key, at).is_some()) {
            return Err(format!("two tasks have the key {key}"));
        }
    }
    let position = |name: &str| name.parse::<usize>().ok().filter(|at| *at < tasks.len() && name == at.to_string());
    let mut dependents = vec![Vec::new(); tasks.len()];
    let mut open = vec![0_usize; tasks.len()];
    for (at, task) in tasks.iter().enumerate() {
        let failed = |what: String| Err(format!("task {}: {what}", task.called));
        let mut found = Vec::with_capacity(task.depends_on.len());
        for name in task.depends_on {
            match keys.get(name.as_str()).copied().or_else(|| position(name)) {
                None => return failed(format!("{name:?} is neither the key nor the position of a task")),
                Some(on) if on == at => return failed("it depends on itself".to_owned()),
                Some(on) if found.contains(&on) => return failed(format!("it names {name:?} twice in dependsOn")),
                Some(on) => found.push(on),
            }
        }
        let is_dependency = |key: &str| keys.get(key).is_some_and(|on| found.contains(on));
        let wanted = outputs(task.prompt);
        if let Some(key) = wanted.iter().find(|key| !is_dependency(key)) {
            return failed(format!("its prompt wants the output of {key:?}, which is not in its dependsOn"));
        }
        let is_live = |key: &str| keys.get(key).and_then(|on| tasks.get(*on)).is_some_and(|task| task.is_session);
        if let Some(key) = wanted.iter().find(|key| is_live(key)) {
            return failed(format!(
                "its prompt wants the output of {key:?}, which is a live session and has none: what it says stays in the session"
            ));
        }
        if let Some(open) = open.get_mut(at) {
            *open = found.len();
        }
        found.iter().filter_map(|on| dependents.get_mut(*on).map(|list: &mut Vec<usize>| list.push(at))).for_each(drop);
    }
    let mut order: Vec<usize> = (0..tasks.len()).filter(|at| open.get(*at) == Some(&0)).collect();
    let mut next = 0;
    while let Some(done) = order.get(next).copied() {
        next += 1;
        for at in dependents.get(done).into_iter().flatten() {
            if let Some(left) = open.get_mut(*at) {
                *left -= 1;
                if *left == 0 {
                    order.push(*at);
                }
            }
        }
    }
    if order.len() < tasks.len() {
        let stuck = tasks.iter().enumerate().filter(|(at, _)| !order.contains(at)).map(|(_, task)| task.called);
        let names: Vec<_> = stuck.take(10).collect();
        return Err(format!("these tasks depend on each other, or on tasks that do: {}", names.join(", ")));
    }
    Ok(order)
}

/// The keys in `{{tasks.<key>.output}}`.
pub(super) fn outputs(prompt: &str) -> Vec<&str> {
    Template::parse(prompt).keys().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(tasks: &[(&str, &[&str], &str)]) -> Result<Vec<usize>, String> {
        let names: Vec<Vec<String>> =
            tasks.iter().map(|(_, on, _)| on.iter().map(|name| (*name).to_owned()).collect()).collect();
        let named = tasks.iter().zip(&names).map(|((key, _, prompt), names)| Named {
            key: Some(key),
            called: key,
            depends_on: names,
            prompt,
            is_session: key.starts_with("live"),
        });
        sort(&named.collect::<Vec<_>>())
    }

    #[test]
    fn tasks_come_after_their_dependencies() {
        assert_eq!(
            order(&[("c", &["b", "2"], "{{tasks.b.output}} \\{{tasks.x.output}}"), ("b", &["a"], ""), ("a", &[], "")]),
            Ok(vec![2, 1, 0])
        );
    }

    #[test]
    fn mistakes_name_the_task() {
        for (tasks, said) in [
            (
                [("a", ["b"].as_slice(), ""), ("b", &["a"], "")].as_slice(),
                "depend on each other, or on tasks that do: a, b",
            ),
            (&[("a", &["a"], "")], "task a: it depends on itself"),
            (&[("a", &["x"], "")], "task a: \"x\" is neither"),
            (&[("a", &[], ""), ("b", &["a", "0"], "")], "task b: it names \"0\" twice"),
            (&[("a", &[], ""), ("a", &[], "")], "two tasks have the key a"),
            (&[("a", &[], ""), ("b", &[], "{{tasks.a.output}}")], "task b: its prompt wants the output of \"a\""),
            (
                &[("live", &[], ""), ("b", &["live"], "{{tasks.live.output}}")],
                "task b: its prompt wants the output of \"live\", which is a live session",
            ),
        ] {
            let error = order(tasks).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
