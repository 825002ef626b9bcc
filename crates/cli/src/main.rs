//! `ensemble`: the command line. Reads arguments, hands over to the command, and ends with its code.

mod arguments;
mod commands;
mod context;
mod failure;
mod home;
mod plan;
mod print;
mod progress;
mod vault;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.global.json;
    match commands::dispatch(arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}
