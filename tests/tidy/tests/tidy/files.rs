//! What every source file keeps to: a head that says why it exists, a length that can be read, bounded channels, and tests
//! that neither sleep nor are switched off.

use crate::repository::{files, is_test};

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
