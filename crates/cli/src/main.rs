//! `ensemble`: the command line. Parses the arguments, runs the command and returns its exit code.

mod account;
mod arguments;
mod commands;
mod confirm;
mod context;
mod failure;
mod global;
mod home;
mod plan;
mod print;
mod progress;
mod settings;
mod vault;

use std::process::ExitCode;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::read();
    let json = arguments.global.json;
    match commands::dispatch(arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}
