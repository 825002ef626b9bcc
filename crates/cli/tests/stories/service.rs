//! The service that starts the runner: what is printed, written and run.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::ensemble::{User, up};

/// Records its arguments.
const SYSTEMCTL: &str = "#!/bin/sh\necho \"$@\" >> \"$HOME/systemctl.log\"\n";

#[test]
#[cfg(target_os = "linux")]
fn a_runner_is_installed_and_removed_as_a_service() {
    let programs = tempfile::tempdir().unwrap();
    let systemctl = programs.path().join("systemctl");
    fs::write(&systemctl, SYSTEMCTL).unwrap();
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
    let user = User::new(None).with_programs(programs.path());
    assert!(user.fail(&["runner", "uninstall"]).contains("nothing is installed"));
    let (_up, url) = up(&user, &["--no-runner"]);
    let unit = user.home().join(".config/systemd/user/ensemble-runner.service");
    let log = user.home().join("systemctl.log");

    let home = user.home().to_str().unwrap();
    let install = ["runner", "install", "--capacity", "2", "--root", home];
    let shown = user.succeed(&install);
    let (file, arguments) =
        (unit.display(), format!("\"--server\" \"{url}\" \"runner\" \"--root\" \"{home}\" \"--capacity\" \"2\""));
    assert!(shown.contains(&format!("# {file}")) && shown.contains(&arguments), "{shown}");
    assert!(shown.contains("systemctl --user restart ensemble-runner.service"), "{shown}");
    assert!(!unit.exists() && !log.exists(), "it is printed only");

    user.succeed(&[install.as_slice(), &["--yes"]].concat());
    assert!(fs::read_to_string(&unit).unwrap().contains(&arguments));
    let run = "--user daemon-reload\n--user enable ensemble-runner.service\n--user restart ensemble-runner.service\n";
    assert_eq!(fs::read_to_string(&log).unwrap(), run);

    assert!(user.run(&["runner", "uninstall"]).out.contains("systemctl --user disable --now"));
    assert!(unit.exists());
    user.succeed(&["runner", "uninstall", "--yes"]);
    assert!(!unit.exists());
    assert!(fs::read_to_string(&log).unwrap().ends_with("--user disable --now ensemble-runner.service\n"));
}
