//! Messages from a device that was removed.

use super::*;
use crate::transcript::body::Control;

/// The same person, with a device that this list removed.
fn removed_in(version: u32) -> Author {
    let Author::Person { user, key, .. } = ann() else { unreachable!() };
    Author::Person { user, key, removed_in: Some(version) }
}

impl Session {
    /// The machine writes, and names this list.
    fn names(&mut self, list: u32) -> Changed {
        self.list = list;
        let changed = self.host(text(0, "written"));
        // The list that the device itself names does not matter.
        self.list = 1;
        changed
    }

    /// The prompts that are shown: `true` for one that counts as its owner's.
    fn prompts(&self) -> Vec<(&str, bool)> {
        let shown = self.view.items().filter_map(|item| match &item.shown {
            Shown::Prompt(prompt, _) => Some((prompt.text.as_str(), true)),
            Shown::Note(Note::Removed(_, text)) => Some((text.as_str(), false)),
            _ => None,
        });
        shown.collect()
    }

    fn says(&mut self, text: &str) {
        self.message(removed_in(3), text, None, prompt(text));
    }
}

/// The earlier messages of a session whose newest ones are already shown.
fn earlier(n: u64, messages: impl FnOnce(&mut Session)) -> Vec<Incoming> {
    let mut session = Session { n, ..Session::default() };
    session.kept = Some(Vec::new());
    messages(&mut session);
    session.kept.unwrap()
}

#[test]
fn a_removed_device_speaks_until_the_machine_knows_of_its_removal() {
    let mut session = Session::default();
    for (list, text) in [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (2, "e")] {
        session.names(list);
        session.says(text);
    }
    let shown = [("a", true), ("b", true), ("c", false), ("d", false), ("e", false)];
    assert_eq!(session.prompts(), shown, "an older list is no way back");
    let Author::Person { user, .. } = ann() else { unreachable!() };
    assert_eq!(session.last(), &Shown::Note(Note::Removed(user, "e".to_owned())));
    session.message(removed_in(3), "f", None, Content::Control(Control::Stop));
    assert_eq!(session.last(), &Shown::Note(Note::Removed(user, String::new())));
    assert!(session.view.waiting().all(|item| item.local_id.as_str() < "c"), "none of it waits for the machine");
    session.host(receipt("d", ReceiptOutcome::Done));
    assert_eq!(session.prompts(), [&shown[..], &[("", false)]].concat(), "none of it was done");
}

#[test]
fn before_the_first_message_of_the_machine_that_is_loaded_that_one_decides() {
    for (list, is_owners) in [(2, true), (3, false), (4, false)] {
        let mut session = Session { n: 40, ..Session::default() };
        session.says("loaded first");
        session.message(ann(), "x", None, prompt("of a listed device"));
        let changed = session.names(list);
        assert_eq!(session.prompts(), [("loaded first", is_owners), ("of a listed device", true)], "list {list}");
        let first = session.view.items().next().unwrap();
        assert_eq!((changed.items.contains(&first.id), first.local_id.is_empty()), (!is_owners, !is_owners));
        let waits = session.view.waiting().any(|item| item.id == first.id);
        assert_eq!(waits, is_owners);
        // The removed device's message is no command, so its id is free.
        session.message(ann(), "loaded first", None, prompt("again"));
        assert_eq!(matches!(session.last(), Shown::Prompt(..)), !is_owners);
    }
    // The machine has named no list before its very first message.
    let mut session = Session::default();
    session.says("at the beginning");
    session.names(3);
    assert_eq!(session.prompts(), [("at the beginning", true)]);
}

#[test]
fn of_older_parts_the_nearest_message_of_the_machine_decides() {
    let mut session = Session { n: 40, seq: 100, ..Session::default() };
    session.names(3);
    session.view.older(earlier(30, |before| {
        before.says("first");
        before.names(2);
        before.says("second");
        before.names(3);
        before.says("third");
    }));
    assert_eq!(session.prompts(), [("first", true), ("second", true), ("third", false)]);
    // A part without a message of the machine.
    session.view.older(earlier(0, |before| before.says("zeroth")));
    assert_eq!(session.prompts()[0], ("zeroth", true), "the next message of the machine names the list 2");

    let mut session = Session { n: 40, seq: 100, ..Session::default() };
    session.names(3);
    session.view.older(earlier(0, |before| before.says("zeroth")));
    assert_eq!(session.prompts(), [("zeroth", false)]);

    let mut session = Session { seq: 100, ..Session::default() };
    session.says("last");
    assert_eq!(session.prompts(), [("last", true)], "nothing is known of the machine");
    session.view.older(earlier(30, |before| drop(before.names(3))));
    assert_eq!(session.prompts(), [("last", false)]);
    session.says("later");
    assert_eq!(session.prompts(), [("last", false), ("later", false)]);
}

#[test]
fn a_message_of_the_machine_before_a_command_counts_more_than_the_one_after_it() {
    let after = || {
        let mut session = Session { n: 40, seq: 100, ..Session::default() };
        session.says("x");
        session.names(3);
        session.host(receipt("x", ReceiptOutcome::Queued));
        assert_eq!(session.prompts(), [("x", false)]);
        session
    };
    let mut session = after();
    session.view.older(earlier(39, |before| drop(before.names(2))));
    assert_eq!(session.prompts(), [("x", true)]);
    assert_eq!(session.view.waiting().count(), 1, "its receipt counts");
    session.view.older(earlier(30, |before| drop(before.names(3))));
    assert_eq!(session.prompts(), [("x", true)], "nothing judges it again");

    // The server keeps back what the machine has written between them.
    let mut session = after();
    session.view.older(earlier(30, |before| drop(before.names(2))));
    assert_eq!(session.prompts(), [("x", false)]);
}
