//! `ensemble doctor`: what it says before it knows everything, and about clocks.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::ensemble::{Running, User};
use crate::runs::program;

#[test]
fn each_line_is_printed_as_soon_as_it_is_known() {
    let programs = tempfile::tempdir().unwrap();
    let gate = programs.path().join("gate");
    mknodat(CWD, &gate, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // It says its version when it may, and not before.
    let open = programs.path().join("open");
    let script = format!(
        "#!/bin/sh\n[ -e {1} ] || {{ read go <{0}; touch {1}; }}\necho '2.1.197 (slow)'\n",
        gate.display(),
        open.display()
    );
    program(programs.path(), "claude", &script);
    let user = User::new(None).with_programs(programs.path());
    let mut doctor = Running::start(&user, &["doctor", "--server", "http://127.0.0.1:9"]);
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.contains("tasks may work in")) {
        let line = doctor.line();
        assert!(!line.is_empty(), "{lines:?}");
        lines.push(line);
    }
    assert!(
        lines.iter().any(|line| line.contains("key")) && lines.iter().all(|line| !line.contains("2.1.197")),
        "{lines:?}"
    );
    // It is asked for more than its version, and each of its processes takes a line.
    let mut opened = OpenOptions::new().write(true).open(&gate).unwrap();
    opened.write_all(&b"go\n".repeat(100)).unwrap();
    while !lines.last().unwrap().contains("2.1.197") {
        let line = doctor.line();
        assert!(!line.is_empty(), "{lines:?}");
        lines.push(line);
    }
}

/// A server that says its version, and a time that is later than that of this computer.
fn server_of_later() -> String {
    let date = Command::new("date").args(["--utc", "--rfc-email", "--date", "12 minutes 30 seconds"]).output().unwrap();
    let date = String::from_utf8(date.stdout).unwrap().trim().to_owned();
    let version =
        serde_json::json!({"name": "ensemble", "version": "0.0.0", "commit": null, "api": ["v1"]}).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = BufReader::new(stream.try_clone().unwrap());
            request.lines().map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            let length = version.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ndate: {date}\r\ncontent-type: application/json\r\ncontent-length: {length}"
            );
            // A client that is gone wants no answer.
            let _gone = write!(stream, "{head}\r\nconnection: close\r\n\r\n{version}");
        }
    });
    url
}

#[test]
fn a_clock_that_is_off_is_found_also_without_a_sign_in() {
    let user = User::new(None);
    let found = user.run(&["doctor", "--server", &server_of_later(), "--json"]);
    let report: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let clock = checks.iter().find(|check| check["check"] == "clock").unwrap_or_else(|| panic!("{report:#}"));
    let found = clock["found"].as_str().unwrap();
    assert!(found.contains("12 min") && found.contains("behind the server's"), "{clock}");
    assert_eq!(clock["advice"], "set the clock that is wrong");
}

#[test]
fn an_old_git_is_named_with_what_it_cannot_do() {
    let git = |says: &str| {
        let programs = tempfile::tempdir().unwrap();
        program(programs.path(), "git", &format!("#!/bin/sh\n{says}\n"));
        let user = User::new(None).with_programs(programs.path());
        let found = user.run(&["doctor", "--server", "http://127.0.0.1:9", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&found.out).unwrap();
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == "git").unwrap_or_else(|| panic!("{report:#}")).clone()
    };
    let old = git("echo git version 2.34.1");
    let found = old["found"].as_str().unwrap();
    assert!(found.contains("2.34") && found.contains("worktrees are refused"), "{old}");
    assert_eq!(old["verdict"], "note");
    assert_eq!(old["advice"], "install git 2.38 or newer");
    let new = git("echo git version 2.38.0");
    assert_eq!(new["verdict"], "ok");
    assert_eq!(new["found"], "version 2.38");
    assert!(git("exit 1")["found"].as_str().unwrap().contains("cannot be run"));
}
