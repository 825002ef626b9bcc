//! What agents were refused: by the lack of a permission, or by a machine that could not run the task.

use ensemble_types::ids::MachineId;
use ensemble_types::runs::{Permission, PermissionDenials, Task};

use crate::failure::Result;
use crate::machines::Machines;
use crate::print;
use crate::progress::name;

/// Refused commands that are shown of each task.
const SHOWN: usize = 5;

/// How many commands were refused in all tasks.
pub(crate) fn count(tasks: &[Task]) -> u32 {
    let counts = tasks.iter().filter_map(|task| task.permission_denials.as_ref()).map(|denials| denials.count);
    counts.fold(0, u32::saturating_add)
}

/// Says what was refused and what to do about it. Says nothing when nothing was.
pub(crate) fn report(tasks: &[Task], machines: &Machines) -> Result<()> {
    for line in lines(tasks, machines) {
        print::line(line)?;
    }
    Ok(())
}

fn lines(tasks: &[Task], machines: &Machines) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        let Some(denials) = task.permission_denials.as_ref().filter(|denials| denials.count > 0) else { continue };
        let of = if tasks.len() > 1 { format!("{}: ", name(task, number)) } else { String::new() };
        let permission = task.permission.map_or(String::new(), |with| format!(" with the permission {with}"));
        lines.push(format!("⚠ {of}{}{permission}: {}", refused(denials.count), summary(denials)));
    }
    if !lines.is_empty() {
        let machine =
            tasks.iter().find(|task| task.permission_denials.is_some()).and_then(|task| task.machine_id.as_ref());
        lines.push(advice(machine, machines));
    }
    lines
}

/// `3 commands were refused`.
fn refused(count: u32) -> String {
    if count == 1 { "1 command was refused".to_owned() } else { format!("{count} commands were refused") }
}

/// `Bash: npm test; Bash: npm run lint; and 2 more`.
fn summary(denials: &PermissionDenials) -> String {
    let shown = denials.denials.iter().take(SHOWN);
    let mut parts: Vec<_> = shown
        .map(|denial| format!("{}: {}", print::inline(&denial.tool), print::short(&denial.summary, 100)))
        .collect();
    let more = usize::try_from(denials.count).unwrap_or(usize::MAX).saturating_sub(parts.len());
    if more > 0 && !parts.is_empty() {
        parts.push(format!("and {more} more"));
    }
    parts.join("; ")
}

fn advice(machine: Option<&MachineId>, machines: &Machines) -> String {
    let on = machine.map_or("the machine".to_owned(), |machine| machines.called(machine));
    format!(
        "  The agent worked on without them. To allow them: --permission bypass (everything), or `allowedTools` in the plan \
         (these patterns). The file runner.yaml on {on} has to permit it: `permissionLimit` and `allowedTools` of the provider."
    )
}

/// Says which tasks had less permission than was asked for. `asked` has one entry for each task.
pub(crate) fn report_less(tasks: &[Task], asked: &[Option<Permission>], machines: &Machines) -> Result<()> {
    for line in less(tasks, asked, machines) {
        print::line(line)?;
    }
    Ok(())
}

fn less(tasks: &[Task], asked: &[Option<Permission>], machines: &Machines) -> Vec<String> {
    let lesser = tasks.iter().zip(asked).enumerate().filter_map(|(number, (task, asked))| {
        let (asked, used) = (asked.as_ref()?, task.permission.as_ref()?);
        let machine = task.machine_id.as_ref().filter(|_| task.attempt > 0 && used < asked)?;
        Some(format!(
            "⚠ {} had the permission {used}, not {asked}: {} allows no more. Raise `permissionLimit` in its runner.yaml.",
            name(task, number),
            machines.called(machine)
        ))
    });
    lesser.collect()
}

/// Says which machines could not run which tasks, and why.
pub(crate) fn report_machines(tasks: &[Task], machines: &Machines) -> Result<()> {
    for (number, task) in tasks.iter().enumerate() {
        for refusal in &task.refusals {
            print::line(format!(
                "⚠ {}: {} could not run it: {} ({})",
                name(task, number),
                machines.called(&refusal.machine_id),
                print::short(&machines.explain(&refusal.message), 300),
                print::inline(&refusal.code)
            ))?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use ensemble_types::runs::PermissionDenial;
    use ensemble_types::text::Text;

    use super::*;
    use crate::machines::tests::machines;
    use crate::progress::tests::task;

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
        let lines = lines(&[one.clone(), task("b")], &machines(&[("m-1", "desk")]));
        assert_eq!(
            lines[0],
            "⚠ a: 3 commands were refused with the permission edit: Bash: npm test; Bash: rm -rf…; and 1 more"
        );
        assert!(lines[1].contains("--permission bypass") && lines[1].contains("on desk (m1000000)"), "{lines:?}");
        assert!(super::lines(&[task("b")], &Machines::default()).is_empty());
    }

    #[test]
    fn less_permission_than_asked_is_said() {
        let mut one = task("a");
        one.machine_id = Some("m-1".parse().unwrap());
        one.permission = Some(Permission::Edit);
        let machines = machines(&[("m-1", "desk")]);
        let with = |task: &Task, asked| less(std::slice::from_ref(task), &[asked], &machines);
        assert!(with(&one, Some(Permission::Edit)).is_empty() && with(&one, None).is_empty());
        let said = with(&one, Some(Permission::Bypass));
        assert!(said[0].contains("had the permission edit, not bypass: desk (m1000000) allows no more"), "{said:?}");
        one.attempt = 0;
        assert!(with(&one, Some(Permission::Bypass)).is_empty(), "it has not run yet");
    }
}
