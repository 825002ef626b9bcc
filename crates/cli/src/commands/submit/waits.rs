//! Tasks that wait from the beginning, because no machine offers their provider.

use ensemble_types::ids::MachineId;
use ensemble_types::runs::Provider;

use super::names;
use crate::machines::{Machines, Runner, runner};
use crate::print;

/// Why tasks wait whose provider their machine, or all machines, do not offer: what is missing, and where it is offered.
pub(super) fn unoffered(wanted: &[(Provider, Option<MachineId>)], machines: &Machines) -> Vec<String> {
    let mut looked_at: Vec<&(Provider, Option<MachineId>)> = Vec::new();
    let mut lines = Vec::new();
    for one in wanted {
        let (provider, on) = one;
        if looked_at.contains(&one) || machines.offered(on.as_ref()).contains(provider) {
            continue;
        }
        lines.extend(missing(*provider, on.as_ref(), machines));
        looked_at.push(one);
    }
    lines
}

fn missing(provider: Provider, on: Option<&MachineId>, machines: &Machines) -> Option<String> {
    let considered = machines.all().iter().filter(|known| on.is_none_or(|id| known.machine.id == *id));
    let states: Vec<_> = considered.map(|known| (known, runner(&known.machine))).collect();
    let state = |runner: &Runner| runner.providers.iter().find(|state| state.provider == provider.as_str()).cloned();
    // A runner that has just started has not looked for all agents yet.
    if states.iter().flat_map(|(_, runner)| runner).any(|runner| runner.providers.is_empty()) {
        return None;
    }
    let place = on.map_or("any of your machines".to_owned(), |id| machines.called(id));
    let why = states.iter().find_map(|(known, runner)| {
        let reason = state(runner.as_ref()?)?.reason?;
        let name = if on.is_none() { format!("{}: ", machines.called(&known.machine.id)) } else { String::new() };
        Some(format!(" ({name}{})", print::short(&reason, 200)))
    });
    let what = match states.iter().any(|(_, runner)| runner.is_some()) {
        true => format!("{provider} is not offered on {place}{}", why.unwrap_or_default()),
        false => format!("No runner runs on {place}: `ensemble runner` there starts one"),
    };
    let elsewhere = machines.all().iter().filter(|known| on.is_some_and(|id| known.machine.id != *id));
    let there: Vec<String> = elsewhere
        .filter(|known| runner(&known.machine).as_ref().and_then(state).is_some_and(|state| state.offered))
        .map(|known| machines.name(&known.machine.id).map_or_else(|| machines.called(&known.machine.id), str::to_owned))
        .collect();
    let others = machines.offered(on).into_iter().filter(|other| *other != provider).collect::<Vec<_>>();
    let mut next = Vec::new();
    if !there.is_empty() {
        next.push(format!("it is offered on {} (--machine)", there.join(", ")));
    }
    if !others.is_empty() {
        next.push(format!("{place} offers {} (--provider)", names(&others)));
    }
    let next = if next.is_empty() { String::new() } else { format!("; {}", next.join(", and ")) };
    Some(format!("{what}{next}. The run waits for it."))
}

/// How to leave a run that waits.
pub(super) fn leave(run: impl std::fmt::Display, is_detached: bool) -> String {
    if is_detached {
        return format!("`ensemble cancel {run}` cancels it.");
    }
    "Ctrl-C offers to cancel it, or to leave it queued. With --detach `ensemble` does not wait for it.".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::tests::machines;

    #[test]
    fn a_provider_that_is_not_offered_is_said_at_once() {
        let offers = |offered: &[&str]| {
            let states: Vec<_> = Provider::ALL
                .iter()
                .map(|provider| {
                    let is_offered = offered.contains(&provider.as_str());
                    let reason = (!is_offered).then_some("not signed in: run `codex login`");
                    serde_json::json!({"provider": provider.as_str(), "offered": is_offered, "reason": reason})
                })
                .collect();
            let runner = serde_json::json!({"capacity": 1, "running": 0, "draining": false, "providers": states});
            Some(serde_json::json!({"runner": runner}))
        };
        let known = machines(&[("this", "desk"), ("other", "laptop")])
            .with_activity("this", offers(&["claude"]))
            .with_activity("other", offers(&["claude", "codex"]));
        let this = || Some("this".parse().unwrap());
        let said = |provider, on| unoffered(&[(provider, on)], &known);
        assert_eq!(
            said(Provider::Codex, this()),
            [
                "codex is not offered on desk (ths00000) (not signed in: run `codex login`); it is offered on laptop (--machine), \
                 and desk (ths00000) offers claude (--provider). The run waits for it."
            ]
        );
        assert!(said(Provider::Claude, this()).is_empty() && said(Provider::Codex, None).is_empty());
        let nowhere = said(Provider::Gemini, None);
        assert!(nowhere[0].starts_with("gemini is not offered on any of your machines (desk"), "{nowhere:?}");
        let none = machines(&[("this", "desk")]);
        let said = unoffered(&[(Provider::Codex, this())], &none);
        assert!(said[0].starts_with("No runner runs on desk"), "{said:?}");
    }
}
