//! The services that start the runner, or everything: what is printed, written and run.

use std::fs;

use ensemble_testkit::free_port;
use tempfile::TempDir;

use crate::ensemble::{User, up, up_at};
use crate::runs::program;

/// Programs that record their arguments.
fn recorded() -> TempDir {
    let programs = tempfile::tempdir().unwrap();
    for name in ["systemctl", "loginctl"] {
        program(programs.path(), name, &format!("#!/bin/sh\necho \"{name} $@\" >> \"$HOME/ran.log\"\n"));
    }
    programs
}

#[test]
#[cfg(target_os = "linux")]
fn a_runner_is_installed_and_removed_as_a_service() {
    let programs = recorded();
    let user = User::new(None).with_programs(programs.path());
    assert!(user.fail(&["runner", "uninstall"]).contains("nothing is installed"));
    let (_up, url) = up(&user, &["--no-runner"]);
    let unit = user.home().join(".config/systemd/user/ensemble-runner.service");
    let log = user.home().join("ran.log");

    let home = user.home().to_str().unwrap();
    let install = ["runner", "install", "--capacity", "2", "--root", home];
    let asked = user.run(&install);
    assert_eq!(asked.code, 2, "no person agrees: {}", asked.err);
    let shown = asked.out;
    let (file, arguments) =
        (unit.display(), format!("\"--server\" \"{url}\" \"runner\" \"--root\" \"{home}\" \"--capacity\" \"2\""));
    assert!(shown.contains(&format!("# {file}")) && shown.contains(&arguments), "{shown}");
    assert!(shown.contains("systemctl --user restart ensemble-runner.service"), "{shown}");
    assert!(!unit.exists() && !log.exists(), "it is printed only");

    user.succeed(&[install.as_slice(), &["--yes"]].concat());
    assert!(fs::read_to_string(&unit).unwrap().contains(&arguments));
    assert_eq!(fs::read_to_string(&log).unwrap(), started("ensemble-runner.service"));

    assert!(user.run(&["runner", "uninstall"]).out.contains("systemctl --user disable --now"));
    assert!(unit.exists());
    user.succeed(&["runner", "uninstall", "--yes"]);
    assert!(!unit.exists());
    assert!(fs::read_to_string(&log).unwrap().ends_with("--user disable --now ensemble-runner.service\n"));
}

fn started(unit: &str) -> String {
    ["daemon-reload".to_owned(), format!("enable {unit}"), format!("restart {unit}")]
        .map(|command| format!("systemctl --user {command}\n"))
        .concat()
}

#[test]
#[cfg(target_os = "linux")]
fn everything_is_installed_as_a_service_that_starts_with_the_computer() {
    let programs = recorded();
    let user = User::new(None).with_programs(programs.path());
    assert!(user.fail(&["up", "--uninstall"]).contains("nothing is installed"));
    let unit = user.home().join(".config/systemd/user/ensemble-up.service");
    let log = user.home().join("ran.log");
    let (home, listen) = (user.home().to_str().unwrap(), format!("127.0.0.1:{}", free_port()));
    let public = "https://ensemble.example.com";
    let install =
        ["up", "--listen", &listen, "--public-url", public, "--proxy-port", "8088", "--root", home, "--install"];
    let asked = user.run(&install);
    assert_eq!(asked.code, 2, "no person agrees: {}", asked.err);
    let shown = asked.out;
    let data = user.files().join("data");
    let arguments = format!(
        "\"up\" \"--listen\" \"{listen}\" \"--data\" \"{}\" \"--public-url\" \"{public}\" \"--proxy-port\" \"8088\" \"--root\" \"{home}\"",
        data.display()
    );
    assert!(shown.contains(&arguments) && shown.contains("loginctl enable-linger"), "{shown}");
    assert!(!unit.exists() && !log.exists() && !data.exists(), "it is printed only");

    user.succeed(&[&install[..], &["--yes"]].concat());
    assert!(fs::read_to_string(&unit).unwrap().contains(&arguments));
    let run = started("ensemble-up.service") + "loginctl enable-linger\n";
    assert_eq!(fs::read_to_string(&log).unwrap(), run);
    user.succeed(&["up", "--uninstall", "--yes"]);
    assert!(!unit.exists());

    // A service could not start where another one answers, nor with what is refused at a start.
    let (_up, _) = up_at(&user, &["up", "--listen", &listen, "--json", "--no-runner"]);
    assert!(user.fail(&install).contains("end it first"));
    assert!(user.fail(&["up", "--install", "--proxy-port", "8088"]).contains("--public-url"));
    assert!(!unit.exists());
}
