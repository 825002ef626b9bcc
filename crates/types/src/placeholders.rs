//! Text in double braces that was meant as a placeholder of a plan, and is none because it is misspelt.
//!
//! Prompts also hold the braces of other languages (Jinja, Vue, Go), which have to stay as they are. So a mistake is only what
//! names a task of the same plan, or is the one form with another case, number or spaces.

/// Longer text in braces is not looked at.
const LONGEST: usize = 160;

/// The first text in braces that is clearly meant as `{{tasks.<key>.output}}`, and what it has to be. `is_key` knows the keys of
/// the plan's tasks.
pub fn misspelt(prompt: &str, is_key: impl Fn(&str) -> bool) -> Option<(&str, String)> {
    paths(prompt).find_map(|(whole, inside)| {
        let parts: Vec<&str> = inside.trim().split('.').map(str::trim).collect();
        let key = match parts.as_slice() {
            [first, key, last] if is_tasks(first) && is_output(last) => key,
            [first, key, ..] if is_tasks(first) && is_key(key) => key,
            [key, last] if is_key(key) && is_output(last) => key,
            _ => return None,
        };
        let meant = format!("{{{{tasks.{key}.output}}}}");
        (whole != meant).then_some((whole, meant))
    })
}

/// Text in braces that may have been meant as a placeholder: a lonely name, or something of tasks or variables.
pub fn doubtful(prompt: &str) -> impl Iterator<Item = &str> {
    let is_doubtful = |inside: &str| {
        let mut parts = inside.trim().split('.').map(str::trim);
        let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        match (second, third) {
            (None, _) => !first.is_empty() && !first.contains(' '),
            (Some(_), None) if first == "vars" => false,
            (Some(_), Some("output")) if first == "tasks" && parts.next().is_none() => false,
            _ => is_tasks(first) || ["var", "vars", "variable", "variables"].contains(&first.to_lowercase().as_str()),
        }
    };
    paths(prompt).filter(move |(_, inside)| is_doubtful(inside)).map(|(whole, _)| whole)
}

fn is_tasks(word: &str) -> bool {
    word.eq_ignore_ascii_case("tasks") || word.eq_ignore_ascii_case("task")
}

fn is_output(word: &str) -> bool {
    word.eq_ignore_ascii_case("output") || word.eq_ignore_ascii_case("outputs")
}

/// What stands in double braces without a backslash and consists of names, full stops and spaces: with and without the braces.
fn paths(prompt: &str) -> impl Iterator<Item = (&str, &str)> {
    prompt.match_indices("{{").filter_map(move |(at, _)| {
        let is_literal = prompt.get(..at)?.ends_with('\\');
        let rest = prompt.get(at + 2..)?;
        let fits = |b: &u8| b.is_ascii_alphanumeric() || b" ._-".contains(b);
        let length = rest.bytes().take(LONGEST).take_while(|b| fits(b)).count();
        let (inside, after) = rest.split_at_checked(length)?;
        let whole = prompt.get(at..at + 2 + length + 2)?;
        (!is_literal && after.starts_with("}}")).then_some((whole, inside))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(prompt: &str) -> Option<String> {
        misspelt(prompt, |key| key == "a").map(|(whole, meant)| format!("{whole} -> {meant}"))
    }

    #[test]
    fn what_means_a_task_of_the_plan_is_a_mistake() {
        for wrong in [
            "{{tasks.a.result}}",
            "{{task.a.output}}",
            "{{ tasks.a.output }}",
            "{{tasks.a}}",
            "{{Tasks.a.Output}}",
            "{{a.output}}",
            "{{tasks.a.output.text}}",
        ] {
            assert_eq!(found(&format!("x {wrong} y")), Some(format!("{wrong} -> {{{{tasks.a.output}}}}")));
        }
        assert!(found("{{ tasks.other.output }}").is_some(), "only the spaces are wrong");
    }

    #[test]
    fn braces_of_others_are_left_alone() {
        for other in [
            "{{tasks.a.output}} {{tasks.b.output}}",
            r"\{{tasks.a.result}}",
            "{{ task.title }} {{ tasks.length }} {{ task.a | upper }} {{ user.output }}",
            "{{#if tasks.a}} {{/if}} {{{ body }}} {{ .Values.a }} {{ a }} {{ tasks.b.result }}",
            "{{ tasks['a'].output }} {{ tasks.a.output",
            "{{",
            "{{}}",
            "ä{{ö}}",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn what_may_have_been_meant_is_named() {
        let of = |prompt| doubtful(prompt).collect::<Vec<_>>();
        assert_eq!(of("{{foo}} {{ var.x }} {{tasks.b.result}}"), ["{{foo}}", "{{ var.x }}", "{{tasks.b.result}}"]);
        assert_eq!(of(r"{{vars.x}} {{ vars.x }} {{tasks.a.output}} \{{foo}} {{ user.name }} {{ a b }} {{}}"), [""; 0]);
    }

    #[test]
    fn long_prompts_are_searched_quickly() {
        let begun = std::time::Instant::now();
        for hostile in ["{".repeat(1_000_000), "{{a".repeat(350_000), "{{ a.".repeat(200_000)] {
            assert_eq!(found(&hostile), None);
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
    }
}
