//! Words that are not used, because the field has another one or because programs do not do this.

use crate::repository::files;

/// The word, or two words that follow each other, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("whoever", "name the caller, the user or the process"),
    ("nobody", "no user, no caller or no process"),
    ("somebody", "name the user, the caller or the process"),
    ("told", "sent, notified or shown"),
    ("knock", "connect"),
    ("knocked", "connected"),
    ("doorway", "listener"),
    ("heard", "received"),
    ("hearing", "receiving"),
    ("believed", "trusted, or verified"),
    ("farewell", "name the message"),
    ("patience", "timeout"),
    ("birth", "creation"),
    ("births", "creations"),
    ("lifeline", "name what it protects"),
    ("neighbour", "peer, or the service's name"),
    ("neighbours", "peers, or the services' names"),
    ("beside", "next to, with, or in addition to"),
    ("anew", "again"),
    ("so many", "this many, or the number"),
    ("goes on", "continues, or resumes"),
];

const ENDINGS: &[&str] = &[
    ".rs",
    ".ts",
    ".tsx",
    ".mjs",
    ".css",
    ".md",
    ".proto",
    ".py",
    ".sh",
    ".yaml",
    ".yml",
    ".mk",
    ".sql",
    ".html",
    "Makefile",
    ".env.example",
];

/// Files whose words are fixed: migrations were applied to databases, and schemas name their columns.
const FIXED: &[&str] = &["/migrations/", "/store/schema.rs"];

/// `nobody` is a user of Unix there.
const UNIX_USERS: &str = "crates/testkit/src/postgres.rs";

#[test]
fn texts_use_the_words_of_the_field() {
    let mut found = Vec::new();
    for file in files(ENDINGS) {
        if file.name.starts_with("tests/tidy") || FIXED.iter().any(|part| file.name.contains(part)) {
            continue;
        }
        for (line, word, instead) in in_text(&file.text) {
            if !(word == "nobody" && file.name == UNIX_USERS) {
                found.push(format!("{}:{line}: {word} ({instead})", file.name));
            }
        }
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}

#[test]
fn words_are_found_in_names_and_across_lines() {
    let found = |text| in_text(text).iter().map(|(line, word, _)| format!("{line} {word}")).collect::<Vec<_>>();
    assert_eq!(found("fn is_told() {\n    isNobodyThere(BESIDE)"), ["1 told", "2 nobody", "2 beside"]);
    assert_eq!(found("/// It goes\n/// on, so many times."), ["2 goes on", "2 so many"]);
    assert!(found("retold, besides, so are many, goes in, on").is_empty());
}

/// Each of the words in a text: the number of its line, the word, and what to write instead.
fn in_text(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    let mut before = String::new();
    for (number, line) in text.lines().enumerate() {
        for word in words(line) {
            let pair = format!("{before} {word}");
            let hits = WORDS.iter().filter(|(no, _)| *no == word || *no == pair);
            found.extend(hits.map(|(no, instead)| (number + 1, *no, *instead)));
            before = word;
        }
    }
    found
}

/// The words of a line in lower case, also those of names such as `isTold` and `is_told`.
fn words(line: &str) -> Vec<String> {
    let mut split = String::new();
    let mut was_lower = false;
    for letter in line.chars() {
        if was_lower && letter.is_uppercase() {
            split.push(' ');
        }
        was_lower = letter.is_lowercase();
        split.push(letter);
    }
    let parts = split.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    parts.map(str::to_lowercase).collect()
}
