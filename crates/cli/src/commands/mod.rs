//! The commands, one file per noun.

use std::process::ExitCode;

pub(crate) mod acp;
pub(crate) mod agent;
pub(crate) mod apply;
pub(crate) mod attach;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod config;
mod conversations;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod diff;
pub(crate) mod discard;
pub(crate) mod r#do;
pub(crate) mod doctor;
pub(crate) mod install;
pub(crate) mod invited;
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
pub(crate) mod update;
pub(crate) mod usage;
pub(crate) mod web;
pub(crate) mod whoami;

/// The result of a command that succeeded.
pub(crate) const DONE: ExitCode = ExitCode::SUCCESS;
