//! Many clients on one session.

use serde_json::Value;

use crate::ensemble::{Running, User, up};
use crate::live::{assert_whole, guest, turns};
use crate::scripted;

/// Of each of the five people.
const CLIENTS: usize = 4;
const PROMPTS: usize = 4;

/// What a client sees until the agent says this.
fn seen(user: &User, session: &str, last: &str) -> Vec<Value> {
    let mut client = Running::start(user, &["log", session, "--follow", "--json"]);
    let mut lines = Vec::new();
    loop {
        let line = client.line();
        let line: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?} after {lines:#?}"));
        let is_last = line["body"]["type"] == "text" && line["body"]["text"] == last;
        lines.push(line);
        if is_last {
            return lines;
        }
    }
}

/// The texts of the messages of this type.
pub(crate) fn texts<'l>(lines: &'l [Value], kind: &str) -> Vec<&'l str> {
    lines.iter().filter(|line| line["body"]["type"] == kind).filter_map(|line| line["body"]["text"].as_str()).collect()
}

#[test]
fn twenty_clients_see_one_order_and_every_prompt_has_one_receipt() {
    let (owner, _programs) = scripted::user();
    let (_up, url) = up(&owner, &[]);
    let session = owner.succeed(&["claude", "begin", "--detach"]).trim().to_owned();
    turns(&owner, &session, 1);
    let mut people = Vec::new();
    for _ in 0..4 {
        let (guest, id) = guest(&url);
        owner.succeed(&["share", "add", &session, &id, "--level", "edit"]);
        people.push(guest);
    }
    people.push(owner);
    let all: Vec<Vec<Value>> = std::thread::scope(|scope| {
        let clients = people.iter().flat_map(|user| std::iter::repeat_n(user, CLIENTS));
        let clients: Vec<_> = clients.map(|user| scope.spawn(|| seen(user, &session, "said the end"))).collect();
        let session = &session;
        let typing: Vec<_> = people
            .iter()
            .enumerate()
            .map(|(person, user)| {
                scope.spawn(move || {
                    for number in 0..PROMPTS {
                        user.succeed(&["prompt", session, &format!("prompt {number} of {person}")]);
                    }
                })
            })
            .collect();
        typing.into_iter().for_each(|typing| typing.join().unwrap());
        people[4].succeed(&["prompt", session, "the end"]);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });

    let first = &all[0];
    assert_eq!(all.len(), 20);
    for (client, other) in all.iter().enumerate() {
        assert_eq!(other, first, "client {client} has seen something else");
    }
    let order: Vec<u64> = first.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert_eq!(order, (1..=first.len() as u64).collect::<Vec<_>>());
    let prompts = texts(first, "prompt");
    assert_eq!(prompts.len(), 2 + people.len() * PROMPTS, "{prompts:?}");
    for (person, user) in people.iter().enumerate() {
        let id = user.json(&["whoami"])["id"].clone();
        let is_of =
            |line: &&Value| line["body"]["text"].as_str().is_some_and(|text| text.ends_with(&format!("of {person}")));
        let own: Vec<_> = first.iter().filter(|line| line["body"]["type"] == "prompt").filter(is_of).collect();
        assert!(own.len() == PROMPTS && own.iter().all(|line| line["author"]["user"] == id), "{own:#?}");
    }
    // The agent was given each of them once, in this order.
    let answers: Vec<_> = texts(first, "text").into_iter().filter_map(|text| text.strip_prefix("said ")).collect();
    assert_eq!(answers, prompts);
    let receipts = first.iter().filter(|line| line["body"]["type"] == "receipt").map(|line| &line["body"]);
    let refused: Vec<_> = receipts.filter(|receipt| receipt["outcome"] == "rejected").collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert_whole(&first.iter().map(|line| line["body"].clone()).collect::<Vec<_>>());
}
