//! `ensemble runs`: lists runs, newest first. `ensemble runs delete`: deletes one.

use clap::{Args, Subcommand, ValueEnum};
use ensemble_types::ids::RunId;
use ensemble_types::runs::Run;
use futures_util::{StreamExt, TryStreamExt};

use super::DONE;
use crate::confirm;
use crate::context::{Context, Me};
use crate::failure::{Failure, Result};
use crate::print;

/// Lists your runs, newest first.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Runs {
    #[command(subcommand)]
    change: Option<Change>,
    /// Only runs in this state
    #[arg(long, short, value_enum)]
    status: Option<Status>,
    /// The maximum number of runs
    #[arg(long, short = 'n', default_value_t = 20)]
    limit: usize,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Delete a run that has ended, with its tasks and their output
    #[command(visible_alias = "rm")]
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Delete {
    /// The run's id, or `last`
    run: Which,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Status {
    /// Not ended yet
    Active,
    /// Ended
    Terminal,
    Queued,
    Running,
    Canceling,
    Completed,
    Failed,
    Cancelled,
}

impl Runs {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        if let Some(Change::Delete(command)) = self.change {
            command.run(context, &me).await?;
            return Ok(DONE);
        }
        let status = self.status.and_then(|status| status.to_possible_value()).map(|value| value.get_name().to_owned());
        let runs: Vec<Run> = me.client.runs(status).take(self.limit).try_collect().await?;
        if context.json {
            print::json(&serde_json::json!({ "runs": runs }), false)?;
            return Ok(DONE);
        }
        if runs.is_empty() {
            print::line("No runs. Submit one with `ensemble run examples/review.yaml`.")?;
            return Ok(DONE);
        }
        let rows: Vec<_> = runs
            .iter()
            .map(|run| {
                [
                    run.id.to_string(),
                    run.status.as_str().to_owned(),
                    format!("{}/{}", run.summary.completed, run.summary.total),
                    print::time(run.created_at),
                    print::short(run.title.as_deref().unwrap_or_default(), 60),
                ]
            })
            .collect();
        print::table(["RUN", "STATE", "TASKS", "SUBMITTED (UTC)", "TITLE"], &rows)?;
        Ok(DONE)
    }
}

impl Delete {
    async fn run(self, context: &Context, me: &Me) -> Result<()> {
        let id = self.run.find(me).await?;
        if !self.yes {
            confirm::deletion(&format!("run {id} with its tasks and their output"))?;
        }
        me.client.delete_run(id).await?;
        if context.json {
            return print::json(&serde_json::json!({ "success": true }), false);
        }
        print::line(format!("Deleted {id}."))
    }
}

/// A run, given as its id or as `last` for the newest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Id(RunId),
    Last,
}

impl std::str::FromStr for Which {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "last" {
            return Ok(Self::Last);
        }
        text.parse().map(Self::Id).map_err(|_| "must be the id of a run, or `last`")
    }
}

impl Which {
    pub(crate) async fn find(self, me: &Me) -> Result<RunId> {
        match self {
            Self::Id(id) => Ok(id),
            Self::Last => {
                let page = me.client.run_page(None, Some(1), None).await?;
                page.runs.first().map(|run| run.id).ok_or_else(|| Failure::message("You have no runs yet."))
            }
        }
    }
}
