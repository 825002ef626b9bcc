//! `ensemble plan`: checks plans and describes their fields to editors. Needs no server.

use clap::{Args, Subcommand};
use ensemble_plan::{Draft, Overrides, SCHEMA};
use ensemble_screen::lines::{Column, Table, Tone};
use serde_json::json;

use super::DONE;
use super::run::Source;
use crate::context::Context;
use crate::failure::Result;
use crate::print;

#[derive(Debug, Subcommand)]
pub(crate) enum Plan {
    /// Check a plan and show its tasks in their order, with machine and directory. Sends nothing
    Check(Check),
    /// Print the JSON Schema of plans. Name it in a plan as `$schema`, and editors check and complete it
    Schema,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    source: Source,
}

impl Plan {
    pub(crate) fn run(self, context: &Context) -> Result {
        match self {
            Self::Check(check) => check.run(context)?,
            Self::Schema => print::line(SCHEMA.trim_end())?,
        }
        Ok(DONE)
    }
}

impl Check {
    fn run(self, context: &Context) -> Result<()> {
        let draft = self.source.read(Overrides::default())?;
        let this = context.account().ok().map(|(client, _)| client.origin().to_owned());
        let this = this.and_then(|origin| context.home.settings().ok()?.machine(&origin).cloned());
        let default = match (&draft.machine, draft.spread, this) {
            (Some(machine), ..) => machine.to_string(),
            (None, Some(true), _) => "any".to_owned(),
            (None, _, Some(this)) => format!("{this} (this machine)"),
            (None, _, None) => "this machine".to_owned(),
        };
        if context.json {
            return as_json(&draft, &default);
        }
        let mut table = Table::new([
            Column::text("TASK", 0, 12),
            Column::text("AFTER", 2, 6),
            Column::fixed("PROVIDER", 4),
            Column::fixed("PERMISSION", 5),
            Column::text("MACHINE", 3, 14),
            Column::text("DIRECTORY", 1, 12),
        ]);
        for step in draft.order.iter().filter_map(|at| draft.steps.get(*at)) {
            let provider = step.provider.as_ref().map_or("?", |provider| provider.as_str());
            let permission = step.permission.map_or("", |permission| permission.as_str());
            let machine = step.machine.as_ref().map_or(default.clone(), ToString::to_string);
            let cells = [&step.called, &step.depends_on.join(", "), provider, permission, &machine, &*step.directory];
            table.row(cells.map(|cell| (Tone::Plain, cell.to_owned())));
        }
        print::table(&table)?;
        draft.warnings().try_for_each(|warning| print::line(format!("\n⚠ {warning}")))?;
        let count = draft.steps.len();
        let tasks = if count == 1 { "task" } else { "tasks" };
        print::line(format!("\nThe plan is right as far as can be seen without the server: {count} {tasks}."))
    }
}

fn as_json(draft: &Draft, default: &str) -> Result<()> {
    let tasks = draft.order.iter().filter_map(|at| draft.steps.get(*at)).map(|step| {
        json!({
            "task": step.called,
            "dependsOn": step.depends_on,
            "provider": step.provider,
            "permission": step.permission,
            "machine": step.machine.as_ref().map_or(default, |machine| machine.as_str()),
            "workingDirectory": &*step.directory,
        })
    });
    print::json(&json!({ "tasks": tasks.collect::<Vec<_>>(), "warnings": draft.warnings().collect::<Vec<_>>() }), false)
}
