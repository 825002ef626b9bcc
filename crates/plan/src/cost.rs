//! Limits of what a task may cost.

use std::collections::BTreeSet;

use ensemble_types::runs::{Provider, Task};

pub const BOUNDS_OF_COST: &str = "must be more than 0, and at most 1000000";

/// Whether a task may have this as its `maxCostUsd`.
pub fn is_cost(max: f64) -> bool {
    max > 0.0 && max <= 1_000_000.0
}

/// Whether a provider's program says what it costs. With another one a limit of cost is not kept.
pub const fn is_reported(provider: Provider) -> bool {
    matches!(provider, Provider::Claude)
}

/// What the tasks may cost, and where that is not kept.
pub fn limits(tasks: &[Task]) -> Option<String> {
    let limited: Vec<_> = tasks.iter().filter_map(|task| Some((task.max_cost_usd?, task.provider))).collect();
    let (least, most) =
        (limited.iter().map(|(max, _)| *max).reduce(f64::min)?, limited.iter().map(|(max, _)| *max).reduce(f64::max)?);
    let range = if least < most { format!("${least} to ${most}") } else { format!("${most}") };
    let unkept: BTreeSet<Provider> = limited.iter().map(|(_, with)| *with).filter(|of| !is_reported(*of)).collect();
    let unkept: Vec<_> = unkept.iter().map(Provider::as_str).collect();
    Some(match unkept.as_slice() {
        [] => format!("{range} a task"),
        names => format!("{range} a task; not kept with {}, which does not report what it costs", names.join(" and ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_more_than_nothing_and_bounded() {
        assert!(is_cost(0.01) && is_cost(1e6));
        assert!(![0.0, -1.0, f64::NAN, f64::INFINITY, 1_000_001.0].into_iter().any(is_cost));
    }

    #[test]
    fn a_limit_says_with_whom_it_is_not_kept() {
        let id = ensemble_types::ids::TaskId::generate();
        let task: Task = serde_json::from_value(serde_json::json!({
            "id": id, "ref": ensemble_types::refs::Ref::of(&id), "provider": "codex", "dependsOn": [], "status": "queued", "attempt": 0,
            "createdAt": "2026-01-01T00:00:00.000Z",
        }))
        .unwrap();
        let task = |provider, max_cost_usd| Task { provider, max_cost_usd, ..task.clone() };
        assert_eq!(limits(&[task(Provider::Claude, None)]), None);
        assert_eq!(limits(&[task(Provider::Claude, Some(2.5)), task(Provider::Codex, None)]).unwrap(), "$2.5 a task");
        let mixed = limits(&[task(Provider::Claude, Some(2.5)), task(Provider::Codex, Some(5.0))]).unwrap();
        assert_eq!(mixed, "$2.5 to $5 a task; not kept with codex, which does not report what it costs");
    }
}
