//! Costs and tokens, as far as the providers report them.

use ensemble_types::runs::{Task, Usage};

/// The sum over tasks. Each part is absent when no task reports it.
pub fn total<'t>(tasks: impl IntoIterator<Item = &'t Task>) -> Usage {
    sum(tasks.into_iter().filter_map(|task| task.usage))
}

pub fn sum(usages: impl IntoIterator<Item = Usage>) -> Usage {
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
pub fn dollars(usage: &Usage) -> String {
    match usage.cost_usd {
        Some(cost) if cost >= 1.0 => format!("${cost:.2}"),
        Some(cost) => format!("${cost:.4}"),
        None => String::new(),
    }
}

/// `1.2k in, 340 out`, or nothing.
pub fn tokens(usage: &Usage) -> String {
    let parts = [(usage.input_tokens, "in"), (usage.output_tokens, "out")];
    let parts = parts.into_iter().filter_map(|(count, what)| Some(format!("{} {what}", short(count?))));
    parts.collect::<Vec<_>>().join(", ")
}

/// `$0.0251, 1.2k tokens in, 340 out`, or nothing.
pub fn sentence(usage: &Usage) -> Option<String> {
    let tokens = tokens(usage);
    let tokens = if tokens.is_empty() { tokens } else { format!("tokens: {tokens}") };
    let parts: Vec<String> = [dollars(usage), tokens].into_iter().filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
pub fn short(count: u64) -> String {
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
    fn what_is_not_reported_is_not_counted_as_nothing() {
        let a = Usage { input_tokens: Some(1_200), output_tokens: None, cost_usd: Some(0.025) };
        let b = Usage { input_tokens: Some(300), output_tokens: Some(40), cost_usd: None };
        assert_eq!(sentence(&sum([a, b])).unwrap(), "$0.0250, tokens: 1.5k in, 40 out");
        assert_eq!(sentence(&sum([])), None);
    }
}
