//! Files as claude writes them, and others that it does not.

use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::*;

const WORK: &str = "/home/anna/work";

/// claude's folder with one project.
fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("projects/-home-anna-work");
    fs::create_dir_all(&project).unwrap();
    (folder, project)
}

/// A name by which claude could have named a file.
fn id(number: u8) -> String {
    Uuid::from_bytes([number; 16]).to_string()
}

fn write(project: &Path, number: u8, lines: &str) -> PathBuf {
    let path = project.join(format!("{}.jsonl", id(number)));
    fs::write(&path, lines).unwrap();
    path
}

fn prompt(text: &str, directory: &str) -> String {
    let message = json!({"role": "user", "content": text});
    format!("{}\n", json!({"type": "user", "isSidechain": false, "cwd": directory, "message": message}))
}

/// The ids and first prompts in the directory.
fn listed(folder: &TempDir) -> Vec<(String, String)> {
    let found = list(folder.path(), Path::new(WORK)).unwrap();
    found.into_iter().map(|found| (found.id, found.first_prompt)).collect()
}

#[test]
fn a_conversation_is_found_by_the_directory_that_its_lines_name() {
    let (folder, project) = folder();
    assert!(listed(&folder).is_empty());
    let queued = json!({"type": "queue-operation", "operation": "enqueue", "content": "fix it"}).to_string() + "\n";
    write(&project, 1, &(queued + &prompt("fix it", WORK) + &prompt("and that", WORK)));
    // Another directory can have the same name in claude's folder, and this one another.
    write(&project, 2, &prompt("not here", "/home/anna-work"));
    let other = folder.path().join("projects/other");
    fs::create_dir(&other).unwrap();
    write(&other, 3, &prompt("moved", WORK));
    let mut found = listed(&folder);
    found.sort_unstable();
    assert_eq!(found, [(id(1), "fix it".to_owned()), (id(3), "moved".to_owned())]);
}

#[test]
fn the_first_prompt_is_what_a_person_has_typed() {
    let (folder, project) = folder();
    let line = |more: Value| {
        let mut all = json!({"type": "user", "cwd": WORK, "message": {"content": "no prompt"}});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{all}\n")
    };
    let lines = [
        line(json!({"isMeta": true})),
        line(json!({"isSidechain": true})),
        line(json!({"type": "assistant"})),
        line(json!({"message": {"content": "<command-name>/clear</command-name>"}})),
        line(json!({"message": {"content": [{"type": "tool_result"}]}})),
        line(json!({"message": {"content": [{"type": "image"}, {"type": "text", "text": "what is this?"}]}})),
        line(json!({})),
    ];
    write(&project, 1, &lines.concat());
    assert_eq!(listed(&folder), [(id(1), "what is this?".to_owned())]);
}

#[test]
fn only_the_beginning_and_the_end_of_a_long_file_are_read() {
    let (folder, project) = folder();
    let part = usize::try_from(PART).unwrap();
    let long = format!("{{\"type\":\"user\",\"x\":\"{}\"}}\n", "x".repeat(4 * part));
    write(&project, 1, &(prompt("begins here", WORK) + &long));
    write(&project, 2, &(prompt("moved here", "/elsewhere") + &long + &prompt("later", WORK)));
    write(&project, 3, &(prompt("was here", "/elsewhere") + &long + &prompt("between", WORK) + &long));
    // A prompt that is longer than what is read.
    write(&project, 4, &(long.clone() + &prompt("after it", WORK)));
    // A file of a thousand gigabytes, which has nothing in it.
    let sparse = fs::File::create(project.join(format!("{}.jsonl", id(5)))).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let mut found = listed(&folder);
    found.sort_unstable();
    let named = |number, text: &str| (id(number), text.to_owned());
    assert_eq!(found, [named(1, "begins here"), named(2, "moved here"), named(4, "")]);
}

#[test]
fn what_is_no_file_of_a_conversation_is_left_out_and_holds_nothing_up() {
    let (folder, project) = folder();
    let good = write(&project, 1, &prompt("good", WORK));
    symlink(&good, project.join(format!("{}.jsonl", id(2)))).unwrap();
    let pipe = project.join(format!("{}.jsonl", id(3)));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(open(&pipe).is_none() && open(&project).is_none() && open(&project.join("none")).is_none());
    fs::create_dir(project.join(format!("{}.jsonl", id(4)))).unwrap();
    write(&project, 5, &("[".repeat(60_000) + "\n{\"type\":7}\nnull\n\u{0}\n"));
    fs::write(project.join("agent-1.jsonl"), prompt("a sub-agent", WORK)).unwrap();
    fs::write(project.join("..jsonl"), prompt("no id", WORK)).unwrap();
    fs::write(folder.path().join("projects/a file"), "").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    write(elsewhere.path(), 6, &prompt("behind a link", WORK));
    symlink(elsewhere.path(), folder.path().join("projects/link")).unwrap();
    assert_eq!(listed(&folder), [(id(1), "good".to_owned())]);
    // A folder that is there no more between two looks.
    fs::remove_dir_all(&project).unwrap();
    assert!(listed(&folder).is_empty());
    fs::remove_dir_all(folder.path().join("projects")).unwrap();
    assert!(listed(&folder).is_empty());
}

#[test]
fn the_newest_files_count() {
    let (folder, project) = folder();
    let now = fs::metadata(folder.path()).unwrap().modified().unwrap();
    for number in 0..u8::try_from(MOST_FILES + 5).unwrap() {
        let path = write(&project, number, &prompt("one of many", WORK));
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(now - Duration::from_secs(number.into())).unwrap();
    }
    let found = listed(&folder);
    assert_eq!((found.len(), &found[0].0), (MOST_FILES, &id(0)));
    assert!(!found.iter().any(|(found, _)| *found == id(204)));
}

#[test]
fn the_folder_is_the_one_that_claude_has() {
    let env = |pairs: &[(&str, &str)]| {
        folder_of(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    assert_eq!(env(&[("HOME", "/h"), ("CLAUDE_CONFIG_DIR", "/c")]), Some("/c".into()));
    assert_eq!(env(&[("HOME", "/h"), ("CLAUDE_CONFIG_DIR", "")]), Some("/h/.claude".into()));
    assert_eq!(env(&[]), None);
}

fn folder_of(env: BTreeMap<String, String>) -> Option<PathBuf> {
    super::folder(&env)
}
