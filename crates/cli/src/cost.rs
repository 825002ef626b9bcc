//! Costs and tokens, as far as the providers report them.

use std::collections::BTreeSet;

use ensemble_types::runs::{Provider, Task, Usage};

use ensemble_plan::is_reported;

/// What the tasks may cost, and where that is not kept.
pub(crate) fn limits(tasks: &[Task]) -> Option<String> {
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

/// The sum over tasks. Each part is absent when no task reports it.
pub(crate) fn total<'t>(tasks: impl IntoIterator<Item = &'t Task>) -> Usage {
    sum(tasks.into_iter().filter_map(|task| task.usage))
}

pub(crate) fn sum(usages: impl IntoIterator<Item = Usage>) -> Usage {
    usages.into_iter().fold(Usage::default(), |sum, usage| Usage {
        input_tokens: both(sum.input_tokens, usage.input_tokens, u64::saturating_add),
        output_tokens: both(sum.output_tokens, usage.output_tokens, u64::saturating_add),
        cost_usd: both(sum.cost_usd, usage.cost_usd, |a, b| a + b),
    })
}

fn both<T>(a: Option<T>, b: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(add(a, b)),
        (a, b) => a.or(b),
    }
}

/// `$0.0251`, or nothing.
pub(crate) fn dollars(usage: &Usage) -> String {
    match usage.cost_usd {
        Some(cost) if cost >= 1.0 => format!("${cost:.2}"),
        Some(cost) => format!("${cost:.4}"),
        None => String::new(),
    }
}

/// `1.2k in, 340 out`, or nothing.
pub(crate) fn tokens(usage: &Usage) -> String {
    let parts = [(usage.input_tokens, "in"), (usage.output_tokens, "out")];
    let parts = parts.into_iter().filter_map(|(count, what)| Some(format!("{} {what}", short(count?))));
    parts.collect::<Vec<_>>().join(", ")
}

/// `$0.0251, 1.2k tokens in, 340 out`, or nothing.
pub(crate) fn sentence(usage: &Usage) -> Option<String> {
    let tokens = tokens(usage);
    let tokens = if tokens.is_empty() { tokens } else { format!("tokens: {tokens}") };
    let parts: Vec<String> = [dollars(usage), tokens].into_iter().filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
pub(crate) fn short(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_says_with_whom_it_is_not_kept() {
        let task = |provider, max_cost_usd| Task { provider, max_cost_usd, ..crate::progress::tests::task("a") };
        assert_eq!(limits(&[task(Provider::Claude, None)]), None);
        assert_eq!(limits(&[task(Provider::Claude, Some(2.5)), task(Provider::Codex, None)]).unwrap(), "$2.5 a task");
        let mixed = limits(&[task(Provider::Claude, Some(2.5)), task(Provider::Codex, Some(5.0))]).unwrap();
        assert_eq!(mixed, "$2.5 to $5 a task; not kept with codex, which does not report what it costs");
    }

    #[test]
    fn what_is_not_reported_is_not_counted_as_nothing() {
        let a = Usage { input_tokens: Some(1_200), output_tokens: None, cost_usd: Some(0.025) };
        let b = Usage { input_tokens: Some(300), output_tokens: Some(40), cost_usd: None };
        assert_eq!(sentence(&sum([a, b])).unwrap(), "$0.0250, tokens: 1.5k in, 40 out");
        assert_eq!(sentence(&sum([])), None);
    }
}
