//! The arguments: all commands, and the options that they share.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    acp, agent, apply, attach, cancel, completions, config, demo, devices, diff, discard, r#do, doctor, invited, link,
    login, logout, machine, open, output, phone, plan, prompt, recovery, retry, run, runner, runs, say, session,
    sessions, share, show, status, talk, token, up, update, usage, web, whoami,
};
use crate::failure::detail;
use crate::global::Global;
use crate::print;

/// The exit code for arguments that are no command.
const WRONG_USAGE: u8 = 2;

/// Work together with coding agents on your own machines.
#[derive(Debug, Parser)]
#[command(name = "ensemble", version, propagate_version = true, after_help = AFTER, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "\
Start with `ensemble up` in one terminal, then `ensemble do \"…\"` in another. `ensemble doctor` finds what is missing.

`last` is the run or session that was used last on this device.

Exit codes: 0 done, 1 failed (also: the run failed), 2 not a command, or one that needs --yes where there is no terminal
to ask at, 3 the run was cancelled, 4 the run completed but agents were refused commands, 5 it is not known what a task
changed, or a machine has not confirmed that a person may no longer prompt, 6 the order waits for a machine that is away, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start all services and a runner on this machine
    Up(up::Up),
    /// Show a live session with a script in place of an agent: no key, no network
    Demo(demo::Demo),
    /// Sign in; the first time this creates an account key
    Login(login::Login),
    /// Sign out; keeps the account key
    Logout(logout::Logout),
    /// Show the server, your account, this machine and your unfinished runs
    Status(status::Status),
    /// Check everything that a run needs on this machine
    Doctor(doctor::Doctor),
    /// Show who you are, and the fingerprint of your key
    Whoami(whoami::Whoami),
    /// Show the devices of your account, and rename or remove one
    Devices(devices::Devices),
    /// Join a session by an invitation
    Join(invited::Join),
    /// Add a device to your account
    Link(link::Link),
    /// Open this server's page on a phone
    Phone(phone::Phone),
    /// Make words that bring your account back
    Recovery(recovery::Recovery),
    /// Register, list and delete your machines
    #[command(subcommand, visible_alias = "machines")]
    Machine(machine::Machine),
    /// Run tasks on this machine
    Runner(runner::Runner),
    /// Let an agent do one thing in this directory
    Do(r#do::Do),
    /// Submit a plan and watch it
    Run(run::Run),
    /// Check a plan, or print the JSON Schema of plans
    #[command(subcommand)]
    Plan(plan::Plan),
    /// List your runs, or delete one
    Runs(runs::Runs),
    /// Show a run and its tasks
    Show(show::Show),
    // A shell offers one name for each command: the first in the alphabet of those that are visible.
    /// Print the output of a task (also: logs)
    #[command(alias = "logs")]
    Output(output::Output),
    /// Show what tasks changed (also: changes)
    #[command(alias = "changes")]
    Diff(diff::Diff),
    /// Bring what tasks changed in their worktrees into the directory
    Apply(apply::Apply),
    /// Remove the worktrees of tasks, with what is in them
    Discard(discard::Discard),
    /// Cancel a run
    Cancel(cancel::Cancel),
    /// Retry the failed and cancelled tasks of a run
    Retry(retry::Retry),
    /// Say something more to the agent of a task that has ended
    Say(say::Say),
    /// Show what your tasks cost, by day, machine or provider
    Usage(usage::Usage),
    #[command(flatten)]
    Known(agent::Known),
    /// The same with any agent that speaks the Agent Client Protocol
    Agent(agent::Named),
    /// Let an editor (Zed, JetBrains, Neovim) drive live sessions
    Acp(acp::Acp),
    /// Show a live session
    Attach(attach::Attach),
    /// Show what live sessions do, and which wait for you
    Sessions(sessions::Sessions),
    /// Give the agent of a live session something to do
    Prompt(prompt::Prompt),
    /// Answer what the agent of a live session asks
    Answer(prompt::Answer),
    /// Interrupt the turn of a live session
    Interrupt(prompt::Which),
    /// End the agent of a live session
    Stop(prompt::Which),
    /// Talk about a live session by voice
    Talk(talk::Talk),
    /// Print the transcript of a live session
    Log(attach::Log),
    /// Create, read and write encrypted sessions
    #[command(subcommand)]
    Session(Box<session::Session>),
    /// Share sessions with users or by a public link
    #[command(subcommand)]
    Share(share::Share),
    /// Show the settings, and choose the default server
    Config(config::Config),
    /// Print a token for curl, or create one for a machine
    Token(token::Token),
    /// Open the page in this computer's browser, and add the browser to your account
    Open(open::Open),
    /// Serve the web app from this program to your browser
    Web(web::Web),
    /// Name the newest version and the command that installs it
    Update(update::Update),
    /// Print completions for a shell
    Completions(completions::Completions),
}

/// The commands as people look for them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["up", "demo", "login", "doctor", "status", "open", "phone"]),
    (
        "Agents",
        &[
            "claude",
            "codex",
            "gemini",
            "opencode",
            "agent",
            "acp",
            "sessions",
            "attach",
            "prompt",
            "answer",
            "interrupt",
            "stop",
            "log",
            "talk",
        ],
    ),
    (
        "Runs",
        &["do", "run", "plan", "runs", "show", "output", "diff", "apply", "discard", "cancel", "retry", "say", "usage"],
    ),
    ("Sessions of people, and sharing", &["session", "share", "join"]),
    ("Machines and devices", &["machine", "runner", "devices", "link", "recovery", "whoami", "logout"]),
    ("Server and settings", &["config", "token", "web", "update", "completions"]),
];

/// Words that people try, and the command that does this. Similar words get a tip from the parser itself.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("check", "doctor` or `ensemble plan check"),
    ("ask", "do"),
    ("exec", "do"),
    ("info", "status"),
    ("reply", "say"),
    ("tell", "say"),
    ("cost", "usage"),
    ("ps", "runs"),
    ("ls", "runs"),
    ("list", "runs"),
    ("watch", "show last --watch"),
    ("follow", "show last --watch"),
    ("signin", "login"),
    ("signout", "logout"),
    ("start", "up"),
    ("serve", "up"),
    ("server", "config server"),
    ("submit", "run"),
    ("kill", "cancel"),
    ("merge", "apply"),
    ("docs", "open"),
    ("settings", "config"),
    ("upgrade", "update"),
    ("approve", "answer"),
    ("allow", "answer"),
    ("deny", "answer"),
];

impl Arguments {
    /// The arguments of this process. Mistakes end it with a message, which is JSON if the arguments ask for it.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        let parsed = grouped(Self::command()).try_get_matches().and_then(|found| Self::from_arg_matches(&found));
        parsed.map_err(|error| {
            let error = with_tip(error);
            let wants_json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
            if !error.use_stderr() || !wants_json {
                error.exit();
            }
            let text = error.to_string();
            let text = text.trim_end().strip_prefix("error: ").unwrap_or(&text);
            print::note(detail(text).to_string());
            ExitCode::from(WRONG_USAGE)
        })
    }
}

/// The command with a help that has its subcommands in groups.
fn grouped(command: clap::Command) -> clap::Command {
    let about = |name: &str| {
        let found = command.get_subcommands().find(|one| one.get_name() == name).and_then(|one| one.get_about());
        found.map(ToString::to_string).unwrap_or_default()
    };
    let mut groups = String::new();
    for (group, names) in GROUPS {
        groups.push_str(&format!("{group}:\n"));
        names.iter().for_each(|name| groups.push_str(&format!("  {name:11}  {}\n", about(name))));
        groups.push('\n');
    }
    let template = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";
    command.before_help(groups).help_template(template)
}

fn with_tip(mut error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::InvalidSubcommand => word.clone(),
        _ => return error,
    };
    if let Some((_, command)) = OTHER_WORDS.iter().find(|(other, _)| *other == word) {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = format!("try `ensemble {command}`").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
        return error.with_cmd(&Arguments::command());
    }
    // Of the words after a command no agent was meant.
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if !usage.contains("ensemble [OPTIONS]") {
        return error;
    }
    let none = format!("there is no agent {word} on this computer; `agents` in runner.yaml can add it").into();
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![none]));
    error
}

#[cfg(test)]
mod documented;

#[cfg(test)]
mod tests {
    use ensemble_agent::known;

    use super::*;

    /// One speaks its own protocol, one the language of a shell, one is a screen, and one shows a code for a camera.
    const WITHOUT_JSON: &[&str] = &["acp", "completions", "demo", "phone"];

    fn names(command: &clap::Command, before: &str, names: &mut Vec<String>) {
        for one in command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
            let name = format!("{before}{}", one.get_name());
            self::names(one, &format!("{name} "), names);
            if !one.is_subcommand_required_set() {
                names.push(name);
            }
        }
    }

    #[test]
    fn each_command_is_in_one_group_of_the_help() {
        let grouped_names: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Arguments::command();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut all: Vec<&str> = visible.map(|one| one.get_name()).filter(|name| *name != "help").collect();
        let mut sorted = grouped_names.clone();
        sorted.sort_unstable();
        all.sort_unstable();
        assert_eq!(sorted, all);
        let help = grouped(Arguments::command()).render_help().to_string();
        let up = help.find("\nStart:\n  up           Start all services").unwrap();
        let runs = help.find("\nRuns:\n  do           Let an agent").unwrap();
        assert!(up < runs && runs < help.find("\nOptions:\n").unwrap(), "{help}");
        assert!(help.contains("Exit codes: 0 done"), "{help}");
    }

    #[test]
    fn each_known_agent_is_a_command_and_no_other_command_has_its_name() {
        let command = Arguments::command();
        for known in &known::ALL {
            let has = |one: &&clap::Command| {
                one.get_name() == known.name || one.get_all_aliases().any(|name| name == known.name)
            };
            assert_eq!(command.get_subcommands().filter(has).count(), 1, "{}", known.name);
            assert!(OTHER_WORDS.iter().all(|(word, _)| *word != known.name), "{}", known.name);
            let found = Arguments::try_parse_from(["ensemble", known.name, "-d", "fix it"]).unwrap();
            assert!(
                format!("{:?}", found.command).contains(&format!("Known(Named {{ name: {:?}", known.name)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_word_that_is_no_command_may_have_been_meant_as_an_agent() {
        let said = |words: &[&str]| with_tip(Arguments::try_parse_from(words).unwrap_err()).to_string();
        let text = said(&["ensemble", "claud"]);
        assert!(text.contains("'claude'") && text.contains("there is no agent claud on this computer"), "{text}");
        let text = said(&["ensemble", "--json", "zzzz"]);
        assert!(text.contains("no agent zzzz") && !text.contains("similar"), "{text}");
        assert!(!said(&["ensemble", "machine", "zzzz"]).contains("no agent"));
    }

    #[test]
    fn what_each_command_prints_for_programs_is_documented() {
        let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/JSON.md")).unwrap();
        let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `")).collect();
        let mut all = Vec::new();
        names(&Arguments::command(), "", &mut all);
        assert!(all.len() > 60, "{all:?}");
        for name in all.iter().filter(|name| !WITHOUT_JSON.contains(&name.as_str())) {
            let has = |row: &str| row.contains(&format!("`{name}`")) || row.contains(&format!("`{name} --"));
            assert!(rows.iter().any(|row| has(row)), "docs/JSON.md does not say what `ensemble {name} --json` prints");
        }
    }
}
