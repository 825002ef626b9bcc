//! A session whose log was lost continues with what the server shows of it.

use ensemble_protocol::AccountKey;
use ensemble_protocol::transcript::Envelope;
use ensemble_types::ids::MessageId;
use ensemble_types::messages::Message as Stored;

use super::*;
use crate::shown::{Recovered, Shown};
use crate::spool::Card;

const LOST: &str = "snapshot.json is missing";

/// A transcript at the server.
struct Server {
    session: SessionId,
    machine: AccountKey,
    messages: Vec<(Stored, Vec<u8>)>,
}

impl Server {
    /// Has all that was said in the room.
    fn of(room: &Room) -> Self {
        let session = room.core.kept.session;
        let mut server = Self { session, machine: AccountKey::generate(), messages: Vec::new() };
        for message in &room.core.kept.unsent {
            server.push(room.owner, &server.machine.clone(), &message.local_id(), message.body.clone());
        }
        server
    }

    fn push(&mut self, user: UserId, key: &AccountKey, local_id: &str, body: String) {
        self.push_of(self.session, user, key, local_id, body);
    }

    fn push_of(&mut self, session: SessionId, user: UserId, key: &AccountKey, local_id: &str, body: String) {
        let opened = Envelope::sign(session, user, body, key.signing_key()).unwrap().write().unwrap();
        let stored = Stored {
            id: MessageId::generate(),
            seq: i64::try_from(self.messages.len()).unwrap() + 1,
            local_id: local_id.to_owned(),
            content: String::new(),
            sender_id: user,
            sender_machine_id: None,
            key_epoch: None,
            created_at: Timestamp::from_unix_seconds(0),
        };
        self.messages.push((stored, opened));
    }

    fn shown(&self) -> Shown {
        let mut shown = Shown::default();
        for (stored, opened) in self.messages.iter().rev() {
            shown.add(self.session, &self.machine.public_key(), stored, opened);
        }
        shown
    }

    /// The host after the loss.
    fn continues(&self, owner: UserId) -> Room {
        let card = Card {
            session: self.session,
            agent: "claude".into(),
            directory: "/nonexistent".into(),
            host_key: "k".into(),
            old_key: None,
            process: None,
            conversation: None,
        };
        let Recovered { kept, unanswered } = self.shown().recovered(card);
        let now = Timestamp::from_unix_seconds(1_800_000_060);
        let mut room = room_by(owner, Kept { lost: Some(now), mark: Some("abcd".into()), ..kept });
        room.now = now;
        room.core.set_time(now);
        room.core.continue_after_loss(LOST, unanswered);
        room.settle();
        room
    }
}

fn host_body(room: &Room, n: u64, content: Content) -> String {
    let list = KnownList { version: 1, digest: "d".into() };
    Message { local_id: format!("h{n}"), at: room.now, list, n: Some(n), content }.write().unwrap()
}

fn command_body(room: &Room, local_id: &str, content: Content) -> String {
    let list = KnownList { version: 1, digest: "d".into() };
    Message { local_id: local_id.into(), at: room.now, list, n: None, content }.write().unwrap()
}

#[test]
fn what_was_under_way_is_closed_and_the_next_prompt_resumes() {
    let mut room = room();
    room.begin();
    let edit = Content::Control(Control::SetMode(SetMode { mode: Mode::Edit, seen: Mode::Ask }));
    room.send(edit);
    let guest = UserId::generate();
    room.grant(guest, May::Approve, 1);
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    let answer = room.answer("yes");
    room.prompt("waits");
    let n = room.core.kept.n;

    let server = Server::of(&room);
    let mut next = server.continues(room.owner);
    assert_eq!(next.types(), "resolved error turn");
    let counts: Vec<u64> = next.said.iter().map(|said| said.n.unwrap()).collect();
    assert_eq!(counts, (n + 1..n + 1 + counts.len() as u64).collect::<Vec<_>>());
    assert_eq!(next.said[0].local_id, format!("h{}-abcd", n + 1), "no message of the lost log has this name");
    assert!(next.core.kept.unsent.iter().all(|message| message.local_id().ends_with("-abcd")));
    let Content::Error(said) = &next.said[1].content else { panic!("{:?}", next.said[1]) };
    assert!(said.text.contains(LOST) && said.text.contains("Prompts that waited"), "{}", said.text);
    assert_eq!((&next.state().mode, next.state().access.len(), next.state().queue.len()), (&Mode::Ask, 0, 0));
    assert_eq!(next.wants.kind, AttentionKind::Failed);

    // Nothing from before is taken, an answer and a guest's right included.
    let owner = next.signer(next.owner, Role::Primary);
    next.now = Timestamp::from_unix_seconds(1_800_000_059);
    let grant = AccessGrant {
        user: guest,
        account: "account".into(),
        may: May::Approve,
        version: 1,
        removed: false,
        key_epoch: None,
        key: None,
    };
    for command in [prompt("one"), Content::Control(Control::Access(grant)), Content::Control(Control::Stop)] {
        rejected(&next.send_as(owner.clone(), command).unwrap(), ReceiptCode::Stale);
    }
    rejected(&next.send_as(owner.clone(), answer).unwrap(), ReceiptCode::Superseded);
    assert!(next.starts.is_empty() && next.lines.is_empty());
    next.now = Timestamp::from_unix_seconds(1_800_000_061);
    let theirs = next.signer(guest, Role::Primary);
    rejected(&next.send_as(theirs.clone(), prompt("theirs")).unwrap(), ReceiptCode::NotAllowed);
    next.prompt("continue");
    assert_eq!(next.starts[0].resume.as_deref(), Some("conversation"));
    next.line("ready");
    assert_eq!(next.lines.last().unwrap(), "prompt continue");
    next.grant(guest, May::Approve, 2);
    next.send_as(theirs, prompt("theirs")).unwrap();
}

#[test]
fn only_what_the_machine_has_signed_counts() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("end");
    let (n, owner) = (room.core.kept.n, room.owner);
    let mut server = Server::of(&room);
    let machine = server.machine.clone();
    let asked = || {
        Content::Question(ensemble_protocol::transcript::body::Question {
            request_id: "r".into(),
            tool_call_id: None,
            questions: Vec::new(),
        })
    };
    server.push(owner, &AccountKey::generate(), &format!("h{}", n + 5), host_body(&room, n + 5, asked()));
    let other = SessionId::generate();
    server.push_of(other, owner, &machine, &format!("h{}", n + 6), host_body(&room, n + 6, asked()));
    server.push(owner, &machine, "h1", host_body(&room, n + 7, asked()));
    let shown = server.shown();
    assert_eq!(shown.n(), n);
    let next = server.continues(owner);
    assert_eq!(next.types(), "error", "nothing is open");
    assert_eq!(next.said[0].n, Some(n + 1));
}

#[test]
fn a_command_without_a_receipt_gets_one() {
    let mut room = room();
    room.begin();
    let device = AccountKey::generate();
    let receipt = |id: &str| {
        let (command_id, key) = (id.to_owned(), device.public_key());
        Content::Receipt(Receipt { command_id, key, outcome: ReceiptOutcome::Queued, code: None, text: None })
    };
    let (n, owner) = (room.core.kept.n, room.owner);
    let mut server = Server::of(&room);
    let machine = server.machine.clone();
    for id in ["a", "b", "c"] {
        server.push(owner, &device, id, command_body(&room, id, prompt(id)));
    }
    server.push(owner, &machine, &format!("h{}", n + 1), host_body(&room, n + 1, receipt("b")));
    let next = server.continues(owner);
    let said: Vec<&str> = next
        .said
        .iter()
        .filter_map(|said| match &said.content {
            Content::Receipt(receipt) => {
                rejected(receipt, ReceiptCode::Stale);
                Some(receipt.command_id.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(said, ["a", "c"]);
    assert_eq!(next.core.kept.seen, i64::try_from(server.messages.len()).unwrap(), "they are not taken later");
}

#[test]
fn a_session_that_has_ended_stays_so_and_a_task_is_not_begun_again() {
    let mut room = room();
    room.begin();
    room.send(Content::Control(Control::Stop));
    room.exit();
    let next = Server::of(&room).continues(room.owner);
    assert_eq!((next.state().phase.clone(), next.wants.kind), (Phase::Ended, AttentionKind::None));

    let mut room = super::room();
    room.begin();
    room.core.task("attempt".into(), "do it".into());
    room.settle();
    room.line("turn");
    let mut next = Server::of(&room).continues(room.owner);
    assert!(matches!(next.core.task_state("attempt"), Some(TaskState::Ended(end)) if !end.is_good()));
    next.core.task("another".into(), "do it".into());
    next.settle();
    next.line("ready");
    assert!(next.lines.last().unwrap().contains("interrupted before"), "{:?}", next.lines);
}
