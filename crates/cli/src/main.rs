//! `ensemble`: the command line. Parses the arguments, runs the command and returns its exit code.

#![allow(
    rustdoc::bare_urls,
    reason = "the help of a command is shown as it is written, without brackets around addresses"
)]

mod agreed;
mod arguments;
mod asking;
mod changes;
mod commands;
mod complete;
mod confirm;
mod context;
#[cfg(feature = "up")]
mod data;
mod environment;
mod failure;
mod following;
#[cfg_attr(not(feature = "up"), expect(dead_code, reason = "`up` uses it"))]
mod foot;
mod global;
mod home;
mod last_lines;
mod live;
mod machines;
mod named;
mod origin;
mod piped;
mod print;
mod says;
mod sealing;
mod watching;
mod when;

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::CompleteEnv;

use crate::arguments::{Arguments, Command};
use crate::context::Context;
use crate::failure::{Failure, Result};

fn main() -> ExitCode {
    // Before anything that needs memory, which the guards of all agents would keep.
    if let Some(code) = ensemble_runner::run_if_guard().or_else(ensemble_runner::run_if_demo) {
        return ExitCode::from(code);
    }
    // A shell that completes a command asks with the variable COMPLETE. Then this ends the program.
    CompleteEnv::with_factory(Arguments::command).complete();
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let json = arguments.global.json;
    match dispatch(arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

/// Runs the command.
fn dispatch(arguments: Arguments) -> Result {
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
        Command::Join(command) => command.run(context).await,
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
        Command::Demo(command) => command.run(context).await,
        Command::Known(command) => command.0.run(context).await,
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
        Command::Update(command) => command.run(context).await,
        Command::Completions(command) => command.run(),
    }
}
