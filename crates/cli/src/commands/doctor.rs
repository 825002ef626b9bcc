//! `ensemble doctor`: checks everything that a run needs on this machine, and says for each problem what to type.

mod programs;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::settings::LinkedMachine;
use ensemble_client::{Client, Credential, Version};
use ensemble_runner::Config;
use ensemble_screen::lines::{Styled, Tone};
use ensemble_types::machines::Machine;
use serde::Serialize;
use serde_json::json;

use super::DONE;
use super::run::here;
use super::runner::Options;
use crate::context::{Context, Linked, anonymous, answers};
use crate::failure::{Failure, Result, is_loopback, start};
use crate::machines::{Machines, Runner, runner};
use crate::print;
use crate::says;
use crate::when;

/// Checks everything that a run needs on this machine: key, server, account, runner, providers and directory. The exit
/// code is 1 when something is wrong.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    runner: Options,
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// It is not as usual, but runs work without it.
    Note,
    Wrong,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    check: String,
    verdict: Verdict,
    found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// All findings so far. Each is printed as soon as it is there, because some checks take long.
#[derive(Debug)]
struct Findings {
    all: Vec<Finding>,
    json: bool,
}

impl Findings {
    fn add(&mut self, check: &str, verdict: Verdict, found: impl Into<String>, advice: Option<String>) {
        let finding = Finding { check: check.to_owned(), verdict, found: found.into(), advice };
        if !self.json {
            // Where nothing can be printed, the exit code still shows the result.
            let _unprintable = finding.print();
        }
        self.all.push(finding);
    }

    fn ok(&mut self, check: &str, found: impl Into<String>) {
        self.add(check, Verdict::Ok, found, None);
    }

    fn wrong(&mut self, check: &str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(check, Verdict::Wrong, found, Some(advice.into()));
    }
}

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let mut findings = Findings { all: Vec::new(), json: context.json };
        // A machine that was linked has no account key, and needs none.
        if let Some(linked) = context.linked_machine()? {
            linked_machine(context, &linked, &mut findings).await;
            if let Ok(config) = self.runner.for_check(context) {
                directory(context, &config, None, &mut findings)?;
                disk(context, &config, &mut findings);
                programs::git(&config, &mut findings).await;
                programs::providers(&config, None, &mut findings).await;
            }
            return end(&findings);
        }
        key(context, &mut findings).await;
        let me = account(context, &mut findings).await;
        let machine = match &me {
            Some(me) => machine(me, &mut findings).await,
            None => None,
        };
        let runner = machine.as_ref().and_then(runner);
        if let Some(machine) = &machine {
            check_runner(machine, runner.as_ref(), &mut findings);
        }
        match self.runner.for_check(context) {
            Ok(config) => {
                let started = me.as_ref().filter(|_| runner.is_some()).map(|me| me.client.origin());
                directory(context, &config, started, &mut findings)?;
                disk(context, &config, &mut findings);
                programs::git(&config, &mut findings).await;
                programs::providers(&config, runner.as_ref(), &mut findings).await;
            }
            Err(failure) => findings.wrong("runner", failure.to_string(), "correct it"),
        }
        end(&findings)
    }
}

/// Whether this machine's key works, and whether its runner is online.
async fn linked_machine(context: &Context, linked: &Linked, findings: &mut Findings) {
    let LinkedMachine { server, owner, machine } = &linked.machine;
    findings.ok("machine", format!("linked as {machine}, for the account {owner}"));
    let key = context.home.machine_key(&context.home.linked_key_path(&linked.origin, machine));
    let key = match key {
        Ok(Some(key)) => key,
        Ok(None) => return findings.wrong("key", "the machine's key is gone", "link it again: `ensemble runner link`"),
        Err(failure) => return findings.wrong("key", failure.to_string(), "link it again: `ensemble runner link`"),
    };
    let client = anonymous(server.clone()).map(|client| client.with_credential(Credential::Device(key)));
    let found = match client {
        Ok(client) => client.machine(machine).await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    match found {
        Ok(found) => check_runner(&found, runner(&found).as_ref(), findings),
        Err(failure) => findings.wrong("server", failure.to_string(), "try again, or link the machine again"),
    }
}

/// Whether the clock of this computer is right. What is signed carries the server's time, within a day.
fn clock(ahead: i64, findings: &mut Findings) {
    if ahead.unsigned_abs() < 60 {
        return;
    }
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    let found = format!(
        "the clock of this computer is {} {side} the server's",
        when::duration(Duration::from_secs(ahead.unsigned_abs()))
    );
    findings.add("clock", Verdict::Note, found, Some("set the clock that is wrong".to_owned()));
}

async fn key(context: &Context, findings: &mut Findings) {
    let path = context.home.key_path().display().to_string();
    match context.home.key() {
        Ok(Some(_)) => findings.ok("key", path),
        Ok(None) => {
            let origin = context.account().map(|(client, _)| client.origin().to_owned()).unwrap_or_default();
            let advice = if is_loopback(&origin) && !answers(&origin).await {
                format!("run `{}`: it starts a server on this machine, makes the key and signs in", start(&origin))
            } else {
                format!("run `{}`", context.typed("login"))
            };
            findings.wrong("key", format!("there is none in {path}"), advice);
        }
        Err(failure) => findings.wrong("key", failure.to_string(), format!("put your copy of the key at {path}")),
    }
}

/// The server and the sign-in.
async fn account(context: &Context, findings: &mut Findings) -> Option<Account> {
    let (client, account) = match context.account() {
        Ok(found) => found,
        Err(failure) => {
            findings.wrong("server", failure.to_string(), "run `ensemble config server URL`");
            return None;
        }
    };
    if !server(&client, findings).await {
        return None;
    }
    // A wrong clock may be why the sign-in fails.
    clock(client.clock().ahead(), findings);
    if !account.is_some_and(|account| account.signed_in) {
        let advice = format!("run `{}`", context.typed("login"));
        findings.wrong("account", format!("not signed in at {}", client.origin()), advice);
        return None;
    }
    match context.me().await {
        Ok(me) => {
            findings.ok("account", format!("signed in as {}", me.id));
            if let Some(advice) = says::single_signer(&me) {
                findings.add(
                    "recovery",
                    Verdict::Note,
                    "no other primary device, and no recovery words",
                    Some(advice.to_owned()),
                );
            }
            Some(me)
        }
        Err(failure) => {
            findings.wrong("account", failure.to_string(), format!("run `{}`", context.typed("login")));
            None
        }
    }
}

async fn server(client: &Client, findings: &mut Findings) -> bool {
    let address = client.base().as_str().trim_end_matches('/').to_owned();
    match client.version().await {
        Ok(Version { version, .. }) if version == env!("CARGO_PKG_VERSION") => {
            findings.ok("server", format!("{address}, version {version}"));
        }
        Ok(Version { version, .. }) => {
            let own = env!("CARGO_PKG_VERSION");
            let advice = "install the same version of both, if something does not work";
            let found = format!("{address}, version {version}; this is {own}");
            findings.add("server", Verdict::Note, found, Some(advice.to_owned()));
        }
        Err(error) => {
            let start = if is_loopback(client.origin()) { start(client.origin()) } else { "ensemble up".to_owned() };
            let advice =
                format!("run `{start}` for a server on this machine, or `ensemble config server URL` for another one");
            findings.wrong("server", crate::failure::Failure::from(error).to_string(), advice);
            return false;
        }
    }
    true
}

async fn machine(me: &Account, findings: &mut Findings) -> Option<Machine> {
    let machines = match Machines::load(me).await {
        Ok(machines) => machines,
        Err(failure) => {
            findings.wrong("machine", failure.to_string(), "try again");
            return None;
        }
    };
    let Some(this) = machines.this() else {
        if let Some(known) = machines.forgotten() {
            let found = format!("this machine was registered as {known}, and the server does not know it any more");
            let advice = "if the server has other data than before, start it with that: `ensemble up --data DIR`. If the machine was deleted, \
                          `ensemble runner` registers this computer as a new one, and its live sessions of before have no host";
            findings.wrong("machine", found, advice);
            return None;
        }
        let advice = "run `ensemble runner` (or `ensemble up`): it registers this machine and runs tasks";
        findings.wrong("machine", "this machine is not registered at this server", advice);
        return None;
    };
    findings.ok("machine", format!("registered as {}", machines.called(this)));
    machines.get(this).map(|known| known.machine.clone())
}

fn check_runner(machine: &Machine, runner: Option<&Runner>, findings: &mut Findings) {
    let start = "run `ensemble runner` in another terminal (or `ensemble up`)";
    match runner {
        Some(runner) if runner.draining => findings.wrong("runner", "it drains and takes no more tasks", start),
        Some(runner) => {
            let found = format!("online, {} of {} tasks running", runner.running, runner.capacity);
            match runner.worktrees {
                Some(worktrees) if worktrees.is_nearly_full() => findings.add(
                    "runner",
                    Verdict::Note,
                    format!("{found}, {}", worktrees.words()),
                    Some(
                        "apply or discard some, before tasks in worktrees are refused: `ensemble discard --all-ended`"
                            .to_owned(),
                    ),
                ),
                Some(worktrees) => findings.ok("runner", format!("{found}, {}", worktrees.words())),
                None => findings.ok("runner", found),
            }
        }
        None if machine.online => {
            let found = "online, but it has not said yet what it offers";
            findings.add("runner", Verdict::Note, found, Some("run `ensemble doctor` again in a moment".to_owned()));
        }
        None => findings.wrong("runner", "no runner is online on this machine", start),
    }
}

/// Whether tasks may work in the current directory: as the runner was started, if one runs, else as it is configured.
fn directory(context: &Context, config: &Config, started: Option<&str>, findings: &mut Findings) -> Result<()> {
    let mut settings = context.home.settings()?;
    let allowed =
        started.and_then(|origin| settings.runner_roots.remove(origin)).unwrap_or_else(|| config.roots.clone());
    let here = here()?;
    let real = here.canonicalize().unwrap_or_else(|_| here.clone());
    let roots: Vec<_> = allowed.iter().filter_map(|root| root.canonicalize().ok()).collect();
    let shown = here.display();
    if roots.iter().any(|root| real.starts_with(root)) {
        findings.ok("directory", format!("tasks may work in {shown}"));
        return Ok(());
    }
    let names: Vec<_> = allowed.iter().map(|root| root.display().to_string()).collect();
    findings.wrong(
        "directory",
        format!("tasks may not work in {shown}, only below {}", names.join(", ")),
        format!(
            "start `ensemble up` or `ensemble runner` with --root {shown}. `ensemble runner` reads `roots` in runner.yaml too"
        ),
    );
    Ok(())
}

/// Whether there is room for what the runner keeps: without it no task begins, and no agent works in a session.
fn disk(context: &Context, config: &Config, findings: &mut Findings) {
    let folders = [context.home.path(), &*config.state_dir];
    let refused = folders.into_iter().filter(|folder| folder.exists()).find_map(|folder| {
        let error = can_write(folder).err()?;
        Some(format!("{} cannot be written: {error}", folder.display()))
    });
    match refused {
        Some(why) => findings.wrong("disk", why, "make room there, or mend the disk"),
        None => findings.ok("disk", "it can be written"),
    }
}

/// Bytes: more than what a disk that is full may still have in a block.
const PROBE: usize = 64 << 10;

fn can_write(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!("probe{}", std::process::id()));
    let written = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(&vec![0; PROBE]).and_then(|()| file.sync_all()));
    let removed = match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    written.and(removed)
}

impl Finding {
    fn print(&self) -> Result<()> {
        let (tone, mark) = match self.verdict {
            Verdict::Ok => (Tone::Good, "✓"),
            Verdict::Note => (Tone::Dim, "·"),
            Verdict::Wrong => (Tone::Bad, "✗"),
        };
        let line = Styled::new(tone, mark).with(Tone::Strong, &format!(" {:10}", self.check));
        print::styled(&line.with(Tone::Plain, &format!(" {}", self.found)))?;
        match &self.advice {
            Some(advice) => print::styled(&Styled::new(tone, "             → ").with(Tone::Plain, advice)),
            None => Ok(()),
        }
    }
}

fn end(findings: &Findings) -> Result {
    let is_well = findings.all.iter().all(|finding| finding.verdict != Verdict::Wrong);
    if findings.json {
        print::json(&json!({ "ok": is_well, "checks": findings.all }), false)?;
    } else {
        print::line(if is_well {
            "\nEverything that a run needs is there."
        } else {
            "\nSomething is wrong; see ✗ above."
        })?;
    }
    Ok(if is_well { DONE } else { ExitCode::FAILURE })
}
