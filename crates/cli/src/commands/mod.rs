//! The commands, one file per noun, and the runtime that runs them.

use std::process::ExitCode;

use crate::arguments::{Arguments, Command};
use crate::context::Context;
use crate::failure::{Failure, Result};

pub(crate) mod acp;
pub(crate) mod agent;
pub(crate) mod apply;
pub(crate) mod attach;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod devices;
pub(crate) mod diff;
pub(crate) mod discard;
pub(crate) mod r#do;
pub(crate) mod doctor;
pub(crate) mod install;
pub(crate) mod join;
pub(crate) mod link;
pub(crate) mod login;
pub(crate) mod logout;
pub(crate) mod machine;
pub(crate) mod open;
pub(crate) mod output;
pub(crate) mod phone;
pub(crate) mod plan;
pub(crate) mod prompt;
pub(crate) mod recovery;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod runs;
pub(crate) mod say;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod share;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod talk;
pub(crate) mod token;
pub(crate) mod up;
pub(crate) mod usage;
pub(crate) mod web;
pub(crate) mod whoami;

/// Runs the command.
pub(crate) fn dispatch(arguments: Arguments) -> Result {
    let Arguments { global, command } = arguments;
    // It needs neither a server nor a home directory.
    if let Command::Completions(command) = command {
        return command.run();
    }
    let context = Context::new(global)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(if matches!(command, Command::Up(_)) { 4 } else { 2 })
        .enable_all()
        .build()
        .map_err(|error| Failure::message(format!("The runtime could not start: {error}.")))?;
    let code = runtime.block_on(async {
        match execute(&context, command).await {
            Ok(code) => Ok(code),
            Err(failure) => Err(context.explained(failure).await),
        }
    });
    // A pending read of standard input must not delay the end of the program.
    runtime.shutdown_background();
    code
}

async fn execute(context: &Context, command: Command) -> Result {
    match command {
        Command::Up(command) => command.run(context).await,
        Command::Login(command) => command.run(context).await,
        Command::Logout(command) => command.run(context).await,
        Command::Whoami(command) => command.run(context).await,
        Command::Devices(command) => command.run(context).await,
        Command::Recovery(command) => command.run(context).await,
        Command::Link(command) => command.run(context).await,
        Command::Phone(command) => command.run(context).await,
        Command::Machine(command) => command.run(context).await,
        Command::Runner(command) => command.run(context).await,
        Command::Do(command) => command.run(context).await,
        Command::Run(command) => command.run(context).await,
        Command::Plan(command) => command.run(context),
        Command::Runs(command) => command.run(context).await,
        Command::Show(command) => command.run(context).await,
        Command::Output(command) => command.run(context).await,
        Command::Diff(command) => command.run(context).await,
        Command::Apply(command) => command.run(context).await,
        Command::Discard(command) => command.run(context).await,
        Command::Cancel(command) => command.run(context).await,
        Command::Retry(command) => command.run(context).await,
        Command::Say(command) => command.run(context).await,
        Command::Usage(command) => command.run(context).await,
        Command::Claude(command) => command.run(context, "claude").await,
        Command::Codex(command) => command.run(context, "codex").await,
        Command::Gemini(command) => command.run(context, "gemini").await,
        Command::Opencode(command) => command.run(context, "opencode").await,
        Command::Agent(command) => command.run(context).await,
        Command::Acp(command) => command.run(context).await,
        Command::Attach(command) => command.run(context).await,
        Command::Sessions(command) => command.run(context).await,
        Command::Prompt(command) => command.run(context).await,
        Command::Answer(command) => command.run(context).await,
        Command::Interrupt(command) => command.interrupt(context).await,
        Command::Stop(command) => command.stop(context).await,
        Command::Talk(command) => command.run(context).await,
        Command::Log(command) => command.run(context).await,
        Command::Session(command) => command.run(context).await,
        Command::Share(command) => command.run(context).await,
        Command::Status(command) => command.run(context).await,
        Command::Doctor(command) => command.run(context).await,
        Command::Config(command) => command.run(context).await,
        Command::Token(command) => command.run(context).await,
        Command::Open(command) => command.run(context).await,
        Command::Web(command) => command.run(context).await,
        Command::Completions(command) => command.run(),
    }
}

/// The result of a command that succeeded.
pub(crate) const DONE: ExitCode = ExitCode::SUCCESS;
