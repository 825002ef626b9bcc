//! A person continues what they have begun with an agent itself.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::ensemble::up;
use crate::live::turns;
use crate::place::Place;
use crate::terminal::Terminal;

const FIRST: &str = "Remember the word parsnip. [[say noted]]";

/// Gives a real agent a prompt in the directory `work`, without Ensemble.
fn by_itself(place: &Place, program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    for (name, value) in place.user.command(&[]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let done = command.args(arguments).current_dir(place.user.home().join("work")).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// What `ensemble sessions --local` lists in this directory of the home.
fn listed(place: &Place, directory: &str) -> Vec<Value> {
    let mut command = place.user.command(&["sessions", "--local", "--json"]);
    let done = command.current_dir(place.user.home().join(directory)).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let all: Value = serde_json::from_slice(&done.stdout).unwrap();
    all["conversations"].as_array().unwrap().clone()
}

/// The only one that is listed, by its id.
fn only(place: &Place) -> String {
    let all = listed(place, "work");
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(all[0]["firstPrompt"], FIRST);
    all[0]["id"].as_str().unwrap().to_owned()
}

/// Whether the model got this prompt together with the first one.
fn was_continued(place: &Place, prompt: &str) -> bool {
    let has = |said: &[String], text: &str| said.iter().any(|said| said.contains(text));
    place.model.requests().iter().any(|asked| has(&asked.user_messages, prompt) && has(&asked.user_messages, "parsnip"))
}

/// Where claude keeps a conversation.
fn file(place: &Place, id: &str) -> PathBuf {
    let projects = std::fs::read_dir(place.user.home().join(".claude/projects")).unwrap();
    let mut files = projects.map(|project| project.unwrap().path().join(format!("{id}.jsonl")));
    files.find(|file| file.exists()).unwrap()
}

fn continued(place: &Place, agent: &str, id: &str, more: &[&str]) -> String {
    let mut words = vec![agent, "--resume-conversation", id];
    words.extend(more);
    let session = place.start(&words);
    turns(&place.user, &session, 1);
    session
}

#[test]
fn a_conversation_of_claude_continues_as_a_session() {
    let place = Place::with_agent("claude", "claude");
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    let begin = || by_itself(&place, "claude", &["-p", FIRST, "--model", "claude-sonnet-4-5"]);
    begin();
    let id = only(&place);
    assert_eq!(listed(&place, "."), Vec::<Value>::new(), "another directory");
    assert_eq!(listed(&place, "work")[0]["inUse"], "justChanged");

    // Without a terminal it says what to type, and the old meaning of an option says the new one.
    let resume = |more: &[&str]| {
        let words = ["claude", "--dir", "work", "--detach", "--resume-conversation", id.as_str(), "x"];
        user.fail(&[&words[..], more].concat())
    };
    let refused = resume(&[]);
    assert!(refused.contains("--copy` continues a copy") && refused.contains("--take-over`"), "{refused}");
    let old = user.fail(&["claude", "--dir", "work", "--resume", &id]);
    assert!(old.contains(&format!("--resume-conversation {id}`")), "{old}");
    assert!(user.fail(&["claude", "--dir", "work", "--resume"]).contains("--resume REF"));

    // A program that has it open has to end first.
    let path = file(&place, &id);
    let opened = File::options().append(true).open(&path).unwrap();
    opened.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    let refused = resume(&["--take-over"]);
    assert!(refused.contains(&format!("Process {} has it open", std::process::id())), "{refused}");
    drop(opened);

    let session = continued(&place, "claude", &id, &["What was it? [[say the first]]"]);
    assert!(was_continued(&place, "What was it?"));
    assert_eq!(listed(&place, "work"), Vec::<Value>::new(), "it is a session now");
    assert!(resume(&[]).contains(&format!("Session {session} continues this conversation")));

    let copy = continued(&place, "claude", &id, &["--copy", "And in the copy? [[say the second]]"]);
    assert!(copy != session && was_continued(&place, "And in the copy?"));
    assert!(!std::fs::read_to_string(&path).unwrap().contains("And in the copy?"));
    assert_eq!(listed(&place, "work"), Vec::<Value>::new(), "the copy is one, too");

    begin();
    let other = only(&place);
    let taken = continued(&place, "claude", &other, &["--take-over", "And then? [[say the third]]"]);
    assert!(was_continued(&place, "And then?"));

    // In a terminal it lists both, and the person chooses.
    begin();
    let last = only(&place);
    let terminal = Terminal::open(user, 160, 30);
    terminal.ensemble("", "claude --dir work --resume");
    for text in [session.as_str(), &copy, &taken, &last, "Which session or conversation?"] {
        terminal.sees(text);
    }
    terminal.line(&taken);
    terminal.sees("the third");
}

#[test]
fn a_conversation_of_codex_continues_as_a_session() {
    let place = Place::with_agent("codex", "codex");
    let (_up, _url) = up(&place.user, &[]);
    assert_eq!(listed(&place, "work"), Vec::<Value>::new());
    let configured = std::fs::read_to_string(place.user.files().join("runner.yaml")).unwrap();
    let configured: Value = serde_json::from_str(&configured).unwrap();
    let model = configured["providers"]["codex"]["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let words: Vec<&str> = ["exec", "--skip-git-repo-check"].into_iter().chain(model).chain([FIRST]).collect();
    by_itself(&place, "codex", &words);
    let id = only(&place);
    continued(&place, "codex", &id, &["--copy", "In the copy? [[say the first]]"]);
    assert!(was_continued(&place, "In the copy?"));
    assert_eq!(only(&place), id, "the copy is a session, and the conversation is not");
    continued(&place, "codex", &id, &["--take-over", "And here? [[say the second]]"]);
    assert!(was_continued(&place, "And here?"));
    assert!(!place.model.requests().iter().any(|asked| {
        let has = |text: &str| asked.user_messages.iter().any(|said| said.contains(text));
        has("And here?") && has("In the copy?")
    }));
    assert_eq!(listed(&place, "work"), Vec::<Value>::new());
}
