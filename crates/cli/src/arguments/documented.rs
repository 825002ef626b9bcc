//! The commands as documents name them.

use clap::CommandFactory;

use super::{Arguments, GROUPS};

fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_table_of_commands_is_documented_as_the_program_has_it() {
    let command = Arguments::command();
    let mut table = "\n| Command | Does |\n|---|---|\n".to_owned();
    for name in GROUPS.iter().flat_map(|(_, names)| names.iter()) {
        let one = command.find_subcommand(name).unwrap();
        let below: Vec<_> = one.get_subcommands().filter(|below| !below.is_hide_set()).collect();
        if !one.is_subcommand_required_set() {
            table.push_str(&format!("| `{name}` | {} |\n", one.get_about().unwrap()));
        }
        for below in below {
            table.push_str(&format!("| `{name} {}` | {} |\n", below.get_name(), below.get_about().unwrap()));
        }
    }
    let text = document("docs/COMMANDS.md");
    let (_, rest) =
        text.split_once("<!-- commands: a test of crates/cli compares this table with the program -->\n").unwrap();
    let (written, _) = rest.split_once("\n<!-- end of commands -->").unwrap();
    assert_eq!(written, table, "the table in docs/COMMANDS.md has to be:\n{table}");
}

/// The words after `ensemble` in the code of a document.
fn commands_in(text: &str) -> Vec<Vec<String>> {
    let (mut found, mut is_shell) = (Vec::new(), false);
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            is_shell = language == "sh";
            continue;
        }
        let line = if is_shell { line.replace("$(ensemble ", "`ensemble ") } else { line.to_owned() };
        let starts = if is_shell { line.strip_prefix("ensemble ") } else { None };
        for rest in starts.into_iter().chain(line.split("`ensemble ").skip(1)) {
            let code = rest.split(['`', '#', ')']).next().unwrap_or_default();
            found.push(code.split_whitespace().map(str::to_owned).collect());
        }
    }
    found
}

#[test]
fn every_command_that_a_document_names_exists() {
    let command = Arguments::command();
    let documents = [
        "README.md",
        "AGENTS.md",
        "llms.txt",
        "CONTRIBUTING.md",
        "docs/COMMANDS.md",
        "docs/FIRST-CLIENT.md",
        "docs/INSTALL.md",
        "docs/VOICE.md",
        "docs/WEB.md",
    ];
    let mut count = 0;
    for name in documents {
        for words in commands_in(&document(name)) {
            let mut words = words.iter().map(String::as_str).peekable();
            while words.next_if(|word| *word == "--server").is_some() {
                words.next();
            }
            let Some(first) = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_lowercase())) else {
                continue;
            };
            let one = command.find_subcommand(first).unwrap_or_else(|| panic!("{name} names `ensemble {first}`"));
            count += 1;
            let Some(second) = words.next().filter(|_| one.is_subcommand_required_set()) else { continue };
            assert!(one.find_subcommand(second).is_some(), "{name} names `ensemble {first} {second}`");
        }
    }
    assert!(count > 60, "{count} commands");
}
