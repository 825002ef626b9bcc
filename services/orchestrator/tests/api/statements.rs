//! The statements in the sources of the service: each one about what belongs to a task names the owner of the rows.

use std::fs;
use std::path::Path;

const TABLES: [&str; 13] = [
    "tasks",
    "task_specs",
    "dependencies",
    "output_chunks",
    "task_permissions",
    "task_sessions",
    "task_signatures",
    "task_messages",
    "task_diffs",
    "task_diff_ends",
    "task_changes",
    "ended_tasks",
    "deleted_runs",
];

/// Functions with a statement that does not name the owner: the table, the file and the function.
const OF_ALL_ACCOUNTS: [(&str, &str, &str); 9] = [
    // The timers look for what is due in all accounts.
    ("tasks", "tasks.rs", "due_pauses"),
    ("tasks", "tasks.rs", "next_pause_end"),
    ("task_changes", "task_changes.rs", "overdue"),
    ("deleted_runs", "purge.rs", "forget_old"),
    // An id is also taken if another account has it.
    ("deleted_runs", "new_run.rs", "chosen"),
    // The caller has found these orders and tasks by their owner. With the owner, SQLite would read all changes of the account.
    ("task_changes", "task_changes.rs", "set_taken"),
    ("task_changes", "task_changes.rs", "withdraw_orders"),
    ("task_changes", "task_changes.rs", "of_tasks"),
    ("task_changes", "task_changes.rs", "forget"),
];

/// How often a text contains this, except as the end of a longer name.
fn count(text: &str, wanted: &str) -> usize {
    let is_whole = |at: &usize| !text[..*at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
    text.match_indices(wanted).map(|(at, _)| at).filter(is_whole).count()
}

/// The functions of a file, with the constants and macros before them.
fn functions(text: &str) -> Vec<(String, String)> {
    let (mut found, mut part) = (Vec::new(), String::new());
    for line in text.lines() {
        part += line;
        part.push('\n');
        if line == "}" {
            let head =
                part.lines().find_map(|line| line.split_once("fn ").filter(|(before, _)| !before.starts_with(' ')));
            if let Some((_, name)) = head {
                let name = name.split(['(', '<']).next().unwrap_or_default().to_owned();
                found.push((name, std::mem::take(&mut part)));
            }
        }
    }
    found
}

/// How often the statements of a function use a table in a place that needs an owner, and how often they name the owner.
fn uses(table: &str, text: &str) -> (usize, usize) {
    let inserts = count(text, &format!("insert_into({table}::table)"));
    // An insert sets the owner. An update of an existing row needs a condition.
    let replaces = if inserts > 0 { 2 * text.matches(".do_update()").count() } else { 0 };
    let written = ["FROM", "JOIN", "UPDATE"].iter().map(|word| written(text, word, table)).sum::<usize>();
    let names = count(text, &format!("{table}::owner_id")) + if written > 0 { count(text, "owner_id = ") } else { 0 };
    (count(text, &format!("{table}::table")) - inserts + replaces + written, names)
}

/// How often a table follows this keyword in literal SQL.
fn written(text: &str, word: &str, table: &str) -> usize {
    let of_table = |rest: &str| rest.strip_prefix(table).is_some_and(|after| after.starts_with([' ', '"']));
    text.split(&format!("{word} ")).skip(1).filter(|rest| of_table(rest)).count()
}

#[test]
fn each_statement_about_what_belongs_to_a_task_names_its_owner() {
    let mut exceptions: Vec<_> = OF_ALL_ACCOUNTS.into();
    let (mut missing, mut seen) = (Vec::new(), 0);
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        // Aliases of tables in a file, and a condition that several statements share.
        let text =
            text.replace("tasks_table::", "tasks::").replace("signatures::of_task()", "task_signatures::owner_id");
        for (name, text) in functions(&text) {
            for table in TABLES {
                let (uses, names) = uses(table, &text);
                seen += uses;
                let before = exceptions.len();
                if uses > names {
                    exceptions.retain(|exception| *exception != (table, file.as_str(), name.as_str()));
                    if exceptions.len() == before {
                        missing.push(format!("{file}: {name} uses {table} {uses} times and its owner {names} times"));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(exceptions.is_empty(), "these name it: {exceptions:?}");
    assert!(seen > 80, "{seen}: the sources are read wrongly");
}
