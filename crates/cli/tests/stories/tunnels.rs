//! `ensemble up --tunnel`, with doubles of the vendors' programs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ensemble_testkit::free_port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::ensemble::{Running, User, until};
use crate::linking::{code_of, join};
use crate::phone::{Authority, trusting};
use crate::runs::program;

const SOON: Duration = Duration::from_secs(180);

/// The doubles of some programs, and what they leave in their folder.
struct Doubles {
    authority: Authority,
    folder: TempDir,
}

impl Doubles {
    fn of(names: &[&str], port: u16) -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let double = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories/tunnels.mjs");
        for name in names {
            let (certificate, key) = (authority.file("cert.pem"), authority.file("key.pem"));
            let folder = folder.path().display();
            let words = format!("{} {name} {certificate} {key} {port} {folder}", double.display());
            program(Path::new(&folder.to_string()), name, &format!("#!/bin/sh\nexec node {words} \"$@\"\n"));
        }
        Self { authority, folder }
    }

    fn user(&self) -> User {
        trusting(&self.authority).with_programs(self.folder.path())
    }

    /// How the tunnels were started.
    fn started(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("started")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last of this many.
    #[track_caller]
    fn last_of(&self, count: usize) -> Value {
        let all =
            until(SOON, "a start", || Some(self.started()).filter(|all| all.len() >= count).ok_or(self.started()));
        assert_eq!(all.len(), count);
        all[count - 1].clone()
    }
}

fn pid(started: &Value) -> Pid {
    Pid::from_raw(i32::try_from(started["pid"].as_i64().unwrap()).unwrap())
}

/// `ensemble up` with a tunnel, and the address that it has.
fn up(user: &User, log: &Path, more: &[&str]) -> (Running, String) {
    let arguments = [&["up", "--listen", "127.0.0.1:0", "--no-runner", "--json"], more].concat();
    let mut running =
        Running::logging(user, &arguments, fs::File::options().append(true).create(true).open(log).unwrap());
    let printed: Value = serde_json::from_str(&running.line()).unwrap();
    let address = printed["forOthers"][0].as_str().unwrap().to_owned();
    (running, address)
}

#[track_caller]
fn says(log: &Path, what: &str) {
    until(SOON, what, || {
        let said = fs::read_to_string(log).unwrap_or_default();
        if said.contains(what) { Ok(()) } else { Err(said) }
    });
}

#[test]
fn a_quick_tunnel_leads_a_phone_here_and_ends_with_the_program() {
    let doubles = Doubles::of(&["cloudflared"], 0);
    let (owner, log) = (doubles.user(), doubles.folder.path().join("log"));
    let (running, address) = up(&owner, &log, &["--tunnel", "cloudflared"]);
    assert!(address.starts_with("https://localhost:"), "{address}");
    says(&log, &format!("Others reach this server at {address}"));
    says(&log, "Cloudflare ends the encryption of the connection");
    let started = doubles.last_of(1);
    let variables: Vec<&str> =
        started["variables"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let known = ["HOME", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHLVL", "SSH_AUTH_SOCK", "TMPDIR", "USER", "_"];
    let foreign: Vec<_> =
        variables.iter().filter(|name| !known.contains(name) && !name.starts_with("ENSEMBLE_")).collect();
    assert!(foreign.is_empty() && !variables.contains(&"ENSEMBLE_HOME"), "{variables:?}");

    // A phone joins from outside; a stranger gets no account.
    let phone = trusting(&doubles.authority);
    let (mut showing, code) = code_of(&owner, &["phone", &address]);
    assert!(code.starts_with(&format!("{address}/link#")), "{code}");
    let (asking, digits) = join(&phone, &code);
    showing.until("new device shows: ");
    showing.answer(&digits);
    for (code, said) in [showing.end(), asking.end()] {
        assert_eq!(code, 0, "{said}");
    }
    let refused = trusting(&doubles.authority).fail(&["login", "--server", &address]);
    assert!(refused.contains("does not accept new accounts"), "{refused}");

    // What it ends with, and a new start.
    let tunnel = pid(&started);
    assert_eq!(running.interrupt(), 0);
    until(SOON, "the tunnel's end", || kill(tunnel, None).err().ok_or("it runs"));
    let (running, next) = up(&owner, &log, &["--tunnel", "cloudflared"]);
    assert_ne!(next, address, "a quick tunnel has a new address");
    says(&log, &format!("Others reach this server at {next}"));
    let tunnel = pid(&doubles.last_of(2));
    kill(Pid::from_raw(i32::try_from(running.pid()).unwrap()), Signal::SIGKILL).unwrap();
    until(SOON, "the tunnel's end", || kill(tunnel, None).err().ok_or("it runs"));
}

#[test]
fn a_tunnel_with_a_name_of_its_own_is_started_again() {
    let port = free_port();
    let doubles = Doubles::of(&["ssh"], port);
    let (owner, log) = (doubles.user(), doubles.folder.path().join("log"));
    let public = format!("https://localhost:{port}");
    let (running, address) = up(&owner, &log, &["--tunnel", "ssh", "me@host.example", "--public-url", &public]);
    assert_eq!(address, public);
    says(&log, &format!("Others reach this server at {public}"));
    says(&log, "host.example ends the encryption of the connection");
    let started = doubles.last_of(1);
    let arguments: Vec<&str> = started["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert!(
        arguments.contains(&"ExitOnForwardFailure=yes") && arguments.ends_with(&["me@host.example"]),
        "{arguments:?}"
    );
    kill(pid(&started), Signal::SIGKILL).unwrap();
    says(&log, "The tunnel has ended");
    let again = doubles.last_of(2);
    until(SOON, "the address", || {
        let checked = owner.run(&["phone", &public, "--check"]);
        if checked.code == 0 { Ok(()) } else { Err(checked.err) }
    });
    assert_eq!(running.interrupt(), 0);
    until(SOON, "the tunnel's end", || kill(pid(&again), None).err().ok_or("it runs"));
}

#[test]
fn tailscale_is_taken_first_and_what_it_serves_stays() {
    let doubles = Doubles::of(&["tailscale", "cloudflared"], free_port());
    let (owner, log) = (doubles.user(), doubles.folder.path().join("log"));
    let serve = doubles.folder.path().join("serve.json");
    fs::write(&serve, r#"{"TCP":{"443":{"HTTPS":true}}}"#).unwrap();
    let refused = owner.fail(&["up", "--listen", "127.0.0.1:0", "--no-runner", "--tunnel"]);
    assert!(refused.contains("tailscale serve status"), "{refused}");
    assert!(doubles.started().is_empty(), "nothing was started");
    fs::remove_file(&serve).unwrap();
    let (running, address) = up(&owner, &log, &["--tunnel"]);
    says(&log, &format!("Others reach this server at {address}"));
    assert!(!fs::read_to_string(&log).unwrap().contains("Anyone on the internet"));
    assert_eq!(doubles.last_of(1)["args"][0], "serve");
    assert_eq!(running.interrupt(), 0);
}

#[test]
fn a_tunnel_that_cannot_be_is_refused_before_anything_is_made() {
    let doubles = Doubles::of(&["cloudflared"], 0);
    let owner = doubles.user();
    let refused =
        |more: &[&str]| owner.fail(&[&["up", "--listen", "127.0.0.1:0", "--no-runner", "--tunnel"], more].concat());
    assert!(refused(&["ssh", "me@host"]).contains("--public-url https://NAME"));
    let unknown = owner.run(&["up", "--listen", "127.0.0.1:0", "--no-runner", "--tunnel", "nonsense"]);
    assert!(unknown.code == 2 && unknown.err.contains("A tunnel is `tailscale`"), "{}: {}", unknown.code, unknown.err);
    assert!(refused(&["cloudflared", "--public-url", "https://h"]).contains("brings its own address"));
    fs::create_dir(owner.home().join(".cloudflared")).unwrap();
    fs::write(owner.home().join(".cloudflared/config.yml"), "tunnel: x\n").unwrap();
    assert!(refused(&["cloudflared"]).contains("config.yml exists"));
    assert!(doubles.started().is_empty(), "nothing was started");
    assert!(!owner.files().join("data").exists(), "nothing was made");
    let runner = owner.home().join("runner.yaml");
    fs::write(&runner, "accept: any\n").unwrap();
    let any = ["up", "--listen", "127.0.0.1:0", "--tunnel", "cloudflared", "--config", runner.to_str().unwrap()];
    assert!(owner.fail(&any).contains("accept: any"));
}
