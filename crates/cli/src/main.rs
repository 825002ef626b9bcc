//! `ensemble`: the command line. Parses the arguments, runs the command and returns its exit code.

#![allow(
    rustdoc::bare_urls,
    reason = "the help of a command is shown as it is written, without brackets around addresses"
)]

mod agent_output;
mod agreed;
mod arguments;
mod asking;
mod changes;
mod commands;
mod complete;
mod confirm;
mod context;
mod cost;
#[cfg(feature = "up")]
mod data;
mod denials;
mod failure;
mod following;
mod global;
mod home;
mod last_lines;
mod live;
mod machines;
mod origin;
mod piped;
mod places;
mod print;
mod progress;
mod says;
mod sealing;
mod seen;
mod styled;
mod table;
mod watching;
mod when;

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::CompleteEnv;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    // Before anything that needs memory, which the guards of all agents would keep.
    if let Some(code) = ensemble_runner::run_if_guard() {
        return ExitCode::from(code);
    }
    // A shell that completes a command asks with the variable COMPLETE. Then this ends the program.
    CompleteEnv::with_factory(Arguments::command).complete();
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let json = arguments.global.json;
    match commands::dispatch(arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}
