//! `ensemble run`: submits a plan and watches the run to its end.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use ensemble_plan::{Draft, LONGEST_PLAN, Overrides, PromptFiles, Variables, assignment, read, read_file, read_text};
use ensemble_types::text::Text;

use super::DONE;
use super::submit::{Choice, Options};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;
use crate::watching::watch;

/// Submits the tasks of a plan (YAML or JSON) and shows their progress. The tasks work in the directory where you type
/// this, on this machine. Ctrl-C offers to cancel the run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    options: Options,
    /// The title, in place of the plan's
    #[arg(long)]
    title: Option<String>,
    /// How many tasks may run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    max_concurrency: Option<u32>,
}

/// The plan and the values of its variables.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// The plan (`-`: from standard input)
    plan: PathBuf,
    /// The value of {{vars.NAME}} in prompts, titles and directories; can be repeated
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    variables: Vec<(String, String)>,
    /// Accept a promptFile outside the plan's directory. Its content is sent to the server
    #[arg(long)]
    allow_outside: bool,
}

impl Run {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let mut draft = self.source.read(self.options.overrides())?;
        if let Some(title) = self.title {
            draft.title = Some(Text::new(title).map_err(|error| Failure::message(format!("The title {error}.")))?);
        }
        draft.max_concurrency = self.max_concurrency.or(draft.max_concurrency);
        if !context.json {
            draft.odd().for_each(|odd| print::note(format!("⚠ {odd}")));
        }
        let me = context.me().await?;
        let (run, asked) = self.options.submit(context, &me, draft, Choice::Only).await?;
        if self.options.detach {
            Options::detached(context, &run, &asked)?;
            return Ok(DONE);
        }
        if !context.json {
            print::note(format!("Run {}", run.reference));
        }
        watch(context, &me, run.id, asked, self.options.allow).await
    }
}

impl Source {
    /// Reads the plan. Nothing is sent.
    pub(crate) fn read(&self, overrides: Overrides) -> Result<Draft> {
        let here = here()?;
        let (name, folder, text) = if self.plan.as_os_str() == "-" {
            ("The plan".to_owned(), here.clone(), read_text(io::stdin(), LONGEST_PLAN))
        } else {
            let folder = here.join(self.plan.parent().unwrap_or(Path::new(".")));
            (self.plan.display().to_string(), folder, read_file(&self.plan, LONGEST_PLAN))
        };
        let text = text.map_err(|error| Failure::message(format!("Cannot read {}: {error}.", self.plan.display())))?;
        let variables = Variables::new(&self.variables);
        let files = PromptFiles::new(&folder, self.allow_outside);
        Ok(read(&text, &name, &files, &here, overrides, &variables)?)
    }
}

/// The current directory.
pub(crate) fn here() -> Result<PathBuf> {
    std::env::current_dir().map_err(|error| Failure::message(format!("The current directory cannot be read: {error}.")))
}
