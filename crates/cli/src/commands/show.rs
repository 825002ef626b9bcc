//! `ensemble show`: shows one run and its tasks.

use clap::Args;
use ensemble_types::runs::{Run, Task};

use super::DONE;
use super::run::watch;
use super::runs::Which;
use crate::context::Context;
use crate::failure::Result;
use crate::print;
use crate::progress::name;

/// Shows a run and its tasks.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The run's id, or `last`
    run: Which,
    /// Update until the run has ended
    #[arg(long, short)]
    watch: bool,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let id = self.run.find(&me).await?;
        if self.watch {
            return watch(context, &me, id).await;
        }
        let run = me.client.run(id).await?;
        if context.json {
            print::json(&run, false)?;
        } else {
            show(&run)?;
        }
        Ok(DONE)
    }
}

fn show(run: &Run) -> Result<()> {
    print::line(format!("run        {}", run.id))?;
    if let Some(title) = &run.title {
        print::line(format!("title      {}", print::inline(title)))?;
    }
    print::line(format!("state      {}", run.status.as_str()))?;
    if let Some(reason) = &run.cancel_reason {
        print::line(format!("cancelled  {}", print::inline(reason)))?;
    }
    print::line(format!("submitted  {} UTC", print::time(run.created_at)))?;
    if let Some(at) = run.finished_at {
        print::line(format!("ended      {} UTC", print::time(at)))?;
    }
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let rows: Vec<_> = tasks.iter().enumerate().map(|(number, task)| row(task, number)).collect();
    print::line("")?;
    print::table(["TASK", "STATE", "ATTEMPT", "PROVIDER", "TIME", "RESULT"], &rows)
}

fn row(task: &Task, number: usize) -> [String; 6] {
    let time = task.started_at.zip(task.finished_at).map(|(from, to)| format!("{} s", to.since(from).as_secs()));
    let result = match (&task.error, &task.output_summary) {
        (Some(error), _) => format!("{}: {}", error.code, error.message),
        (None, Some(summary)) => summary.clone(),
        (None, None) => String::new(),
    };
    [
        task.task_key.clone().unwrap_or_else(|| name(task, number)),
        task.status.as_str().to_owned(),
        task.attempt.to_string(),
        task.provider.as_str().to_owned(),
        time.unwrap_or_default(),
        print::short(&result, 80),
    ]
}
