//! What agents were refused: by the lack of a permission, or by a machine that could not run the task.

use ensemble_types::line::{inline, short};
use ensemble_types::runs::{Permission, PermissionDenial, PermissionDenials, Provider, Refusal, Task};

use super::Machines;

/// Refused commands that are shown of each task.
const SHOWN: usize = 5;

/// How many commands were refused in all tasks.
pub fn count(tasks: &[Task]) -> u32 {
    let counts = tasks.iter().filter_map(|task| task.permission_denials.as_ref()).map(|denials| denials.count);
    counts.fold(0, u32::saturating_add)
}

/// What was refused, if anything was, and what to do about it.
pub fn report(tasks: &[Task], machines: &impl Machines) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        let Some(denials) = task.permission_denials.as_ref().filter(|denials| denials.count > 0) else { continue };
        let of = if tasks.len() > 1 { format!("{}: ", task.called(number)) } else { String::new() };
        let permission = task.permission.map_or(String::new(), |with| format!(" with the permission {with}"));
        lines.push(format!("⚠ {of}{}{permission}: {}", refused(denials.count), summary(denials)));
    }
    let has_denials = |task: &&Task| task.permission_denials.as_ref().is_some_and(|denials| denials.count > 0);
    lines.extend(tasks.iter().find(has_denials).into_iter().flat_map(|task| advice(task, machines)));
    lines
}

/// `3 commands were refused`.
fn refused(count: u32) -> String {
    if count == 1 { "1 command was refused".to_owned() } else { format!("{count} commands were refused") }
}

/// `Bash: npm test; Bash: npm run lint; and 2 more`.
fn summary(denials: &PermissionDenials) -> String {
    let shown = denials.denials.iter().take(SHOWN);
    let mut parts: Vec<_> =
        shown.map(|denial| format!("{}: {}", inline(&denial.tool), short(&denial.summary, 100))).collect();
    let more = usize::try_from(denials.count).unwrap_or(usize::MAX).saturating_sub(parts.len());
    if more > 0 && !parts.is_empty() {
        parts.push(format!("and {more} more"));
    }
    parts.join("; ")
}

/// What can be typed, and what the machine of the task has to permit for it.
fn advice(task: &Task, machines: &impl Machines) -> Vec<String> {
    let mut lines = vec!["  The agent worked on without them. To allow them, begin the run with".to_owned()];
    if task.permission == Some(Permission::Plan) {
        lines.push("    --permission edit    changes of files in its directory".to_owned());
        return lines;
    }
    // codex takes no patterns.
    let denial = task.permission_denials.as_ref().and_then(|denials| denials.denials.first());
    let patterns = denial.filter(|_| task.provider != Provider::Codex).map(patterns).unwrap_or_default();
    if !patterns.is_empty() {
        let typed: Vec<_> = patterns.iter().map(|pattern| format!("--allow-tool '{pattern}'")).collect();
        lines.push(format!("    {}    this one, as `allowedTools` in a plan", typed.join(" ")));
    }
    lines.push("    --permission bypass    everything".to_owned());
    let file = machines.runner_file(task.machine_id.as_ref());
    lines.push(format!("  The runner grants no more than is written in {file}:"));
    lines.push("    providers:".to_owned());
    let quoted: Vec<_> = patterns.iter().map(|pattern| format!("\"{pattern}\"")).collect();
    let tools = if quoted.is_empty() { String::new() } else { format!(", allowedTools: [{}]", quoted.join(", ")) };
    lines.push(format!("      {}: {{permissionLimit: bypass{tools}}}", task.provider));
    lines.push("  Write it there. It counts for the next task: the runner need not be started again.".to_owned());
    lines
}

/// Patterns for `--allow-tool` that allow this together: one for each part of a command, because an agent asks about each. They
/// can be typed and put into YAML as they are.
fn patterns(denial: &PermissionDenial) -> Vec<String> {
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || " ._/=:@,+-".contains(c));
    let tool: String = denial.tool.chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).collect();
    let command: &str = &denial.summary;
    let of_program = |part: &str| {
        let word = part.split_whitespace().find(|word| !word.contains('='))?.to_owned();
        (is_plain(&word) && (1..=60).contains(&word.len())).then(|| format!("{tool}({word}:*)"))
    };
    match tool.as_str() {
        "Bash" | "run_shell_command" if is_plain(command) && (1..=60).contains(&command.len()) => {
            vec![format!("{tool}({command})")]
        }
        "Bash" => {
            let mut patterns: Vec<String> = Vec::new();
            for part in parts(command) {
                match of_program(&part) {
                    Some(pattern) if !patterns.contains(&pattern) => patterns.push(pattern),
                    Some(_) => {}
                    None => return vec![tool],
                }
            }
            patterns
        }
        _ => vec![tool],
    }
}

/// The parts of a command line between `;`, `&`, `|` and line feeds that are not quoted.
fn parts(command: &str) -> Vec<String> {
    let (mut parts, mut part, mut quote) = (Vec::new(), String::new(), None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if matches!(c, ';' | '&' | '|' | '\n') => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Which tasks had less permission than was asked for. `asked` has one entry for each task.
pub fn report_less(tasks: &[Task], asked: &[Option<Permission>], machines: &impl Machines) -> Vec<String> {
    let lesser = tasks.iter().zip(asked).enumerate().filter_map(|(number, (task, asked))| {
        let (asked, used) = (asked.as_ref()?, task.permission.as_ref()?);
        let machine = task.machine_id.as_ref().filter(|_| task.attempt > 0 && used < asked)?;
        Some(format!(
            "⚠ {} had the permission {used}, not {asked}: {} allows no more. Raise `permissionLimit` in {}: it counts for the \
             next task.",
            task.called(number),
            machines.called(machine),
            machines.runner_file(Some(machine))
        ))
    });
    lesser.collect()
}

/// The tasks without the refusals that their error or their reason for waiting says already.
pub fn not_said(tasks: &[Task]) -> Vec<Task> {
    let is_new = |task: &Task, refusal: &Refusal| {
        let is_error =
            task.error.as_ref().is_some_and(|error| error.code == refusal.code && error.message == refusal.message);
        let message = refusal.message.trim_end_matches('.');
        let machine = refusal.machine_id.as_str();
        let says = |reason: &String| reason.contains(message) && reason.contains(machine);
        !(is_error || task.waiting_reason.as_ref().is_some_and(says))
    };
    let rest = |task: &Task| {
        let refusals = task.refusals.iter().filter(|refusal| is_new(task, refusal)).cloned().collect();
        Task { refusals, ..task.clone() }
    };
    tasks.iter().map(rest).collect()
}

/// Which machines could not run which tasks, and why.
pub fn report_machines(tasks: &[Task], machines: &impl Machines) -> Vec<String> {
    let all =
        tasks.iter().enumerate().flat_map(|(number, task)| task.refusals.iter().map(move |one| (number, task, one)));
    let said = all.map(|(number, task, refusal)| {
        format!(
            "⚠ {}: {} could not run it: {} ({})",
            task.called(number),
            machines.called(&refusal.machine_id),
            short(&machines.explain(&refusal.message), 300),
            inline(&refusal.code)
        )
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use ensemble_types::text::Text;

    use super::*;
    use crate::lines::tests::{Desk, task};

    fn denied(count: u32, commands: &[&str]) -> PermissionDenials {
        let denial = |command: &&str| PermissionDenial {
            tool: Text::new("Bash").unwrap(),
            summary: Text::new(*command).unwrap(),
        };
        PermissionDenials { count, denials: commands.iter().map(denial).collect() }
    }

    #[test]
    fn refused_commands_are_named_with_what_to_do() {
        let mut one = task("a");
        one.machine_id = Some("m-1".parse().unwrap());
        one.permission = Some(Permission::Edit);
        one.permission_denials = Some(denied(3, &["npm test", "rm -rf\nbuild"]));
        assert_eq!(count(&[one.clone(), task("b")]), 3);
        let lines = report(&[one.clone(), task("b")], &Desk);
        assert_eq!(
            lines[0],
            "⚠ a: 3 commands were refused with the permission edit: Bash: npm test; Bash: rm -rf…; and 1 more"
        );
        let said = lines.join("\n");
        for part in [
            "--permission bypass",
            "/me/runner.yaml:\n    providers:\n      codex: {permissionLimit: bypass}",
            "need not be started again",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("--allow-tool"), "codex takes none: {said}");
        one.provider = Provider::Claude;
        let said = report(std::slice::from_ref(&one), &Desk).join("\n");
        for part in ["--allow-tool 'Bash(npm test)'", "allowedTools: [\"Bash(npm test)\"]"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        one.permission = Some(Permission::Plan);
        let said = report(&[one], &Desk).join("\n");
        assert!(said.contains("--permission edit") && !said.contains("bypass"), "{said}");
        assert!(report(&[task("b")], &Desk).is_empty());
    }

    #[test]
    fn a_pattern_can_be_typed_as_it_stands() {
        let of = |tool: &str, summary: &str| {
            let (tool, summary) = (Text::new(tool).unwrap(), Text::new(summary).unwrap());
            patterns(&PermissionDenial { tool, summary }).join(" ")
        };
        assert_eq!(of("Bash", "git push --force"), "Bash(git push --force)");
        assert_eq!(of("Bash", "rm 'a'; echo \"$b\""), "Bash(rm:*) Bash(echo:*)");
        let command = "sed -i 's/a | b/a; b/' calc.py && A=1 python3 test.py | sed q";
        assert_eq!(of("Bash", command), "Bash(sed:*) Bash(python3:*)");
        assert_eq!(of("Bash", "$(x) y"), "Bash");
        assert_eq!(of("We'b\"Fetch", "https://example.com"), "WebFetch");
        assert_eq!(of("run_shell_command", "ls -l"), "run_shell_command(ls -l)");
    }

    #[test]
    fn less_permission_than_asked_is_said() {
        let mut one = task("a");
        one.machine_id = Some("m-1".parse().unwrap());
        one.permission = Some(Permission::Edit);
        let with = |task: &Task, asked| report_less(std::slice::from_ref(task), &[asked], &Desk);
        assert!(with(&one, Some(Permission::Edit)).is_empty() && with(&one, None).is_empty());
        let said = with(&one, Some(Permission::Bypass));
        assert!(said[0].contains("had the permission edit, not bypass: desk (m1000000) allows no more"), "{said:?}");
        assert!(said[0].ends_with("in /me/runner.yaml: it counts for the next task."), "{said:?}");
        one.attempt = 0;
        assert!(with(&one, Some(Permission::Bypass)).is_empty(), "it has not run yet");
    }
}
