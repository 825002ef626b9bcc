//! What every source file keeps to: a head that says why it exists, a length that can be read, bounded channels, one place that
//! prints, and tests that neither sleep nor are switched off.

use crate::repository::{files, is_test, metadata, root};

/// Lines that a source file may have.
const MOST_LINES: usize = 400;

#[test]
fn every_file_says_why_it_exists() {
    for file in files(&[".rs"]) {
        assert!(file.text.starts_with("//!"), "{} does not open with //!", file.name);
    }
}

#[test]
fn files_stay_short_enough_to_read() {
    for file in files(&[".rs"]) {
        let lines = file.text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines; split it by noun", file.name);
    }
}

#[test]
fn channels_have_bounds() {
    for file in files(&[".rs"]).iter().filter(|file| !is_test(&file.name)) {
        let mut forbidden = vec!["unbounded_channel", "mpsc::unbounded"];
        // tokio's `channel` has a bound, the standard library's has none.
        if file.text.contains("std::sync::mpsc") {
            forbidden.push("mpsc::channel(");
        }
        for word in forbidden {
            assert!(!file.text.contains(word), "{}: {word} has no bound", file.name);
        }
    }
}

/// Text from a server or an agent must not control the terminal, so only these files write to it: `print.rs` cleans what it prints. The
/// others write scripts, JSON and lines that were cleaned before.
#[test]
fn the_command_line_prints_in_one_place() {
    const PRINT: [&str; 4] = ["print.rs", "progress/mod.rs", "commands/completions.rs", "commands/acp.rs"];
    let may = |name: &str| PRINT.iter().any(|file| name == format!("crates/cli/src/{file}"));
    let mut found = Vec::new();
    for file in files(&[".rs"]) {
        if !file.name.starts_with("crates/cli/src/") || may(&file.name) || is_test(&file.name) {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let asks = line.contains("is_terminal") || line.contains("tcgetwinsize") || line.contains("with_writer");
            let writes = ["::stdout()", "::stderr()", "println!(", "print!("].iter().any(|word| line.contains(word));
            if writes && !asks {
                found.push(format!("{}:{}: {}", file.name, number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "print these with crate::print, which cleans them:\n{}", found.join("\n"));
}

/// Futures in such a set are polled only while their owner waits for the set. One that waits for a connection of the database meanwhile
/// would be given the connection and keep it. `ensemble_store_kit::deliveries` and `tokio::task::JoinSet` begin tasks in their place.
#[test]
fn what_services_do_at_once_are_tasks() {
    const SETS: &[&str] = &["FuturesUnordered", "FuturesOrdered", "buffer_unordered", ".buffered("];
    let server = ["services/", "crates/all-in-one/", "crates/chassis/", "crates/rpc/", "crates/store-kit/"];
    let (mut checked, all) = (0, files(&[".rs"]));
    for file in
        all.iter().filter(|file| !is_test(&file.name) && server.iter().any(|place| file.name.starts_with(place)))
    {
        checked += 1;
        for word in SETS {
            assert!(
                !file.text.contains(word),
                "{}: {word} does not poll its futures while its owner waits for something else",
                file.name
            );
        }
    }
    assert!(checked > 100, "only {checked} files: the rule checks nothing");
}

#[test]
fn tests_do_not_sleep_and_are_not_switched_off() {
    for file in files(&[".rs"]) {
        if !file.name.contains("/tests/") || file.name.starts_with("tests/tidy") {
            continue;
        }
        for word in ["thread::sleep", "time::sleep", "#[ignore", "todo!("] {
            assert!(!file.text.contains(word), "{}: {word} (poll with ensemble_testkit::eventually)", file.name);
        }
    }
}

/// A target without tests says so, which saves a test program. Tests that are added to it later would never run.
#[test]
fn targets_that_are_not_tested_hold_no_tests() {
    let sources = files(&[".rs"]);
    let meta = metadata();
    let root = root().display().to_string();
    let mut checked = 0;
    for package in meta["packages"].as_array().unwrap().iter().filter(|package| package["source"].is_null()) {
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if target["test"] == true || !["bin", "lib"].contains(&kind) {
                continue;
            }
            let start = target["src_path"].as_str().unwrap().strip_prefix(&root).unwrap().trim_start_matches('/');
            // A library is all of its folder but the programs.
            let folder = start.trim_end_matches("lib.rs");
            let is_part = |name: &str| {
                let below = name.strip_prefix(folder);
                name == start
                    || (kind == "lib" && below.is_some_and(|path| path != "main.rs" && !path.starts_with("bin/")))
            };
            // A macro may write tests for other crates.
            for file in sources.iter().filter(|file| is_part(&file.name) && !file.text.contains("macro_rules!")) {
                checked += 1;
                for word in ["#[cfg(test)]", "#[test]", "#[tokio::test"] {
                    assert!(!file.text.contains(word), "{}: {word} in a target with `test = false`", file.name);
                }
            }
        }
    }
    assert!(checked > 20, "only {checked} files: the rule checks nothing");
}

#[test]
fn the_project_stands_alone() {
    for file in files(&[".rs", ".md", ".toml", ".yaml", ".yml", ".mk", "Makefile", ".py", ".sh", ".proto"]) {
        if file.name.starts_with("tests/tidy") {
            continue;
        }
        for word in ["../shared", "../.library", "/work/"] {
            assert!(!file.text.contains(word), "{} refers to {word}", file.name);
        }
    }
}
