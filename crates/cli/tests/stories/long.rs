//! A session with many messages.

use std::time::Instant;

use crate::crowd::texts;
use crate::ensemble::{Running, up};
use crate::live::{assert_whole, until};
use crate::scripted;
use crate::terminal::Terminal;

#[test]
fn a_session_of_ten_thousand_messages_shows_its_end_at_once() {
    const MANY: usize = 10_000;
    let (user, _programs) = scripted::user();
    let (_up, _url) = up(&user, &[]);
    let session = user.succeed(&["claude", &format!("many {MANY}"), "--detach"]).trim().to_owned();
    until("all messages at the server", || {
        let sessions = user.json(&["sessions"]);
        sessions["sessions"][0]["session"]["lastSeq"].as_u64().filter(|last| *last > MANY as u64)
    });
    let newest = format!("line {MANY}");
    let begun = Instant::now();
    let mut client = Running::start(&user, &["attach", &session]);
    let mut shown = vec![client.line()];
    while shown.last().is_some_and(|line| line.trim() != newest) {
        assert!(!shown.last().unwrap().is_empty(), "it has ended: {shown:#?}");
        shown.push(client.line());
    }
    let took = begun.elapsed();
    println!("the end of {MANY} messages was shown after {took:?}, with {} lines", shown.len());
    assert!(shown.len() < MANY / 10, "it has loaded older messages than it shows: {}", shown.len());
    // Older ones are loaded when they are looked for.
    let terminal = Terminal::open(&user, 100, 30);
    terminal.ensemble("", &format!("attach {session}"));
    terminal.sees(&newest);
    let number = |line: &String| line.trim().strip_prefix("line ").and_then(|number| number.parse::<usize>().ok());
    terminal.until("what was said long before", |lines| {
        let is_old = lines.iter().filter_map(number).any(|number| number < MANY - 700);
        if !is_old {
            terminal.key("PageUp");
        }
        is_old
    });
    drop(terminal);
    let lines = user.json_lines(&["log", &session]);
    assert!(texts(&lines, "text").into_iter().eq((1..=MANY).map(|number| format!("line {number}"))));
    assert_whole(&lines.iter().map(|line| line["body"].clone()).collect::<Vec<_>>());
}
