//! A log on disk, whole, torn and damaged.

use super::super::kept::Outgoing;
use super::*;
use uuid::Uuid;

pub(crate) fn kept() -> Kept {
    Kept::new(SessionId::generate(), "claude".into(), "/w".into(), "k".into())
}

pub(crate) fn say(n: u64, bytes: usize) -> Change {
    Change::Say(Outgoing { n, local_id: None, body: "x".repeat(bytes) })
}

fn open(folder: &tempfile::TempDir, kept: &Kept) -> (Spool, Kept) {
    match Spool::open(folder.path(), kept.session).unwrap() {
        Opened::Whole(spool, kept) => (spool, *kept),
        lost => panic!("{lost:?}"),
    }
}

pub(crate) fn step(spool: &mut Spool, kept: &mut Kept, changes: Vec<Change>) {
    changes.iter().cloned().for_each(|change| kept.apply(change));
    spool.write(&changes).unwrap();
    if spool.is_long() {
        spool.fold(kept).unwrap();
    }
}

#[test]
fn what_was_written_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = kept();
    let mut spool = Spool::create(folder.path(), &kept).unwrap();
    step(&mut spool, &mut kept, vec![say(1, 5), say(2, 5), Change::Seen(7)]);
    step(&mut spool, &mut kept, vec![Change::Sent(1)]);
    assert_eq!(Spool::all(folder.path()).unwrap(), [kept.session]);
    let (_, read) = open(&folder, &kept);
    assert_eq!((read.n, read.seen, read.unsent.len()), (2, 7, 1));
}

#[test]
fn a_key_that_a_removed_guest_has_is_known_also_without_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    fs::create_dir(&sessions).unwrap();
    let mut kept = kept();
    let mut spool = Spool::create(&sessions, &kept).unwrap();
    step(&mut spool, &mut kept, vec![Change::OldKey(3)]);
    step(&mut spool, &mut kept, vec![Change::OldKey(2)]);
    drop(spool);
    let snapshot = sessions.join(kept.session.to_string()).join(SNAPSHOT);
    let whole = fs::read(&snapshot).unwrap();
    fs::write(&snapshot, "").unwrap();
    assert_eq!(lost(&sessions, &kept).0.old_key, Some(3));
    fs::write(&snapshot, whole).unwrap();
    let Opened::Whole(_, read) = Spool::open(&sessions, kept.session).unwrap() else { panic!("it is whole") };
    assert_eq!(read.old_key, Some(3));
}

#[test]
fn half_a_step_did_not_happen() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = kept();
    let mut spool = Spool::create(folder.path(), &kept).unwrap();
    step(&mut spool, &mut kept, vec![say(1, 5)]);
    step(&mut spool, &mut kept, vec![say(2, 5), Change::Seen(3)]);
    let path = folder.path().join(kept.session.to_string()).join("log-0.jsonl");
    let whole = fs::read(&path).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for end in first..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let (mut spool, mut read) = open(&folder, &kept);
        assert_eq!((read.n, read.seen), (1, 0), "{end} bytes");
        // What comes after it is not lost with it.
        step(&mut spool, &mut read, vec![Change::Seen(9)]);
        assert_eq!(open(&folder, &kept).1.seen, 9);
    }
}

#[test]
fn a_long_log_is_folded_and_nothing_is_applied_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = kept();
    let mut spool = Spool::create(folder.path(), &kept).unwrap();
    for n in 1..=100 {
        step(&mut spool, &mut kept, vec![say(n, 100_000)]);
        step(&mut spool, &mut kept, vec![Change::Sent(n.saturating_sub(2))]);
    }
    let session = folder.path().join(kept.session.to_string());
    let names = fs::read_dir(&session).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let (kept_logs, others): (Vec<String>, Vec<String>) = names.partition(|name| name.starts_with("sent-"));
    assert_eq!((kept_logs.len(), others.len()), (2, 3), "a snapshot, one log and what never changes: {others:?}");
    let (_, read) = open(&folder, &kept);
    assert_eq!((read.n, read.unsent.len()), (100, 2));
    // A process that ended between the new snapshot and the removal of the old log.
    fs::write(session.join("log-0.jsonl"), b"[{\"seen\":99}]\n").unwrap();
    assert_eq!(open(&folder, &kept).1.seen, 0);
}

/// Opens a log that is lost, and says why.
fn lost(folder: &Path, kept: &Kept) -> (Card, String) {
    match Spool::open(folder, kept.session).unwrap() {
        Opened::Lost(card, why) => (card, why),
        whole => panic!("{whole:?}"),
    }
}

#[test]
fn a_damaged_log_is_replaced_and_kept() {
    type Damage = fn(&Path);
    fn change(path: &Path, from: &str, to: &str) {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    }
    let damages: [(&str, Damage); 7] = [
        ("another version", |session| change(&session.join(SNAPSHOT), "\"v\":1", "\"v\":0")),
        ("snapshot.json cannot be read", |session| change(&session.join(SNAPSHOT), "\"agent\"", "\"agent\"\"")),
        ("snapshot.json cannot be read", |session| fs::write(session.join(SNAPSHOT), "").unwrap()),
        ("snapshot.json is missing", |session| fs::remove_file(session.join(SNAPSHOT)).unwrap()),
        ("of another session", |session| {
            let name = session.file_name().unwrap().to_str().unwrap();
            change(&session.join(SNAPSHOT), name, &SessionId::generate().to_string());
        }),
        ("log-0.jsonl is damaged after 0 bytes", |session| change(&session.join("log-0.jsonl"), "seen", "sewn")),
        ("log-0.jsonl is missing", |session| fs::remove_file(session.join("log-0.jsonl")).unwrap()),
    ];
    for (says, damage) in damages {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path().join("sessions");
        fs::create_dir(&sessions).unwrap();
        let mut kept = kept();
        let mut spool = Spool::create(&sessions, &kept).unwrap();
        let process = Uuid::from_bytes([7; 16]);
        step(&mut spool, &mut kept, vec![Change::Seen(1), Change::HostKey("k2".into())]);
        step(&mut spool, &mut kept, vec![Change::Process(process)]);
        let session = sessions.join(kept.session.to_string());
        damage(&session);
        let (card, why) = lost(&sessions, &kept);
        assert!(why.contains(says), "{why}");
        assert_eq!((card.agent.as_str(), card.host_key.as_str(), card.process), ("claude", "k2", Some(process)));
        // Another attempt does not make it worse.
        assert_eq!(lost(&sessions, &kept).0, card);

        let fresh = Kept { n: 40, ..Kept::new(kept.session, card.agent, card.directory, card.host_key) };
        let (spool, aside) = Spool::replace_lost(&sessions, &fresh, &[]).unwrap();
        drop(spool);
        assert!(aside.join(CARD).exists(), "what was there is kept in {}", aside.display());
        let Opened::Whole(mut spool, mut read) = Spool::open(&sessions, kept.session).unwrap() else {
            panic!("{says}")
        };
        assert_eq!(
            (read.n, read.seen, read.host_key.as_str()),
            (40, 0, "k2"),
            "no step of the old log is left: {says}"
        );
        step(&mut spool, &mut read, vec![say(41, 3)]);
        let Opened::Whole(_, read) = Spool::open(&sessions, kept.session).unwrap() else { panic!("{says}") };
        assert_eq!(read.n, 41);
    }
}

#[test]
fn without_a_log_and_what_never_changes_nothing_can_be_done() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept();
    drop(Spool::create(folder.path(), &kept).unwrap());
    let session = folder.path().join(kept.session.to_string());
    fs::write(session.join(SNAPSHOT), "{").unwrap();
    fs::write(session.join(CARD), "{").unwrap();
    let error = Spool::open(folder.path(), kept.session).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

#[test]
fn what_never_changes_is_written_for_a_log_that_has_it_not() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept();
    drop(Spool::create(folder.path(), &kept).unwrap());
    let session = folder.path().join(kept.session.to_string());
    fs::remove_file(session.join(CARD)).unwrap();
    drop(open(&folder, &kept));
    fs::remove_file(session.join(SNAPSHOT)).unwrap();
    assert_eq!(lost(folder.path(), &kept).0, Card::of(&kept));
}

#[test]
fn the_newest_lost_logs_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    fs::create_dir(&sessions).unwrap();
    let kept = kept();
    drop(Spool::create(&sessions, &kept).unwrap());
    let asides: Vec<PathBuf> = (0..5).map(|_| Spool::replace_lost(&sessions, &kept, &[]).unwrap().1).collect();
    let there: Vec<bool> = asides.iter().map(|aside| aside.exists()).collect();
    assert_eq!(there, [false, false, true, true, true]);
}

#[test]
fn nothing_is_left_of_a_session_that_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    fs::create_dir(&sessions).unwrap();
    let (deleted, other) = (kept(), kept());
    for kept in [&deleted, &other] {
        drop(Spool::create(&sessions, kept).unwrap());
        Spool::replace_lost(&sessions, kept, &[]).unwrap();
    }
    Spool::delete(&sessions, deleted.session).unwrap();
    Spool::delete(&sessions, deleted.session).unwrap();
    let mut left = vec![folder.path().to_owned()];
    let mut names = Vec::new();
    while let Some(path) = left.pop() {
        names.push(path.display().to_string());
        left.extend(fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    assert!(!names.iter().any(|name| name.contains(&deleted.session.to_string())), "{names:?}");
    assert_eq!(names.iter().filter(|name| name.ends_with("session.json")).count(), 2, "{names:?}");
    assert!(names.iter().any(|name| name.contains(&other.session.to_string())), "{names:?}");
}

#[test]
fn a_new_log_has_what_is_said_in_it_before_it_counts() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    fs::create_dir(&sessions).unwrap();
    let mut kept = kept();
    let mut spool = Spool::create(&sessions, &kept).unwrap();
    step(&mut spool, &mut kept, vec![say(41, 5)]);
    drop(spool);
    let session = sessions.join(kept.session.to_string());
    fs::write(session.join(SNAPSHOT), "").unwrap();
    let fresh =
        Kept { n: 41, mark: Some("m".into()), ..Kept::new(kept.session, "claude".into(), "/w".into(), "k".into()) };
    let says = [Change::Say(Outgoing { n: 41, local_id: Some("h41-m".into()), body: "fresh".into() })];

    // The process ends before there is a snapshot.
    let in_the_way = session.join("snapshot.new");
    fs::create_dir(&in_the_way).unwrap();
    Spool::replace_lost(&sessions, &fresh, &says).unwrap_err();
    assert!(fs::read_to_string(session.join("log-1.jsonl")).unwrap().contains("h41-m"));
    lost(&sessions, &kept);

    fs::remove_dir(&in_the_way).unwrap();
    drop(Spool::replace_lost(&sessions, &fresh, &says).unwrap());
    let Opened::Whole(..) = Spool::open(&sessions, kept.session).unwrap() else { panic!("it is whole") };
    let mut history = Spool::history(&sessions, kept.session, 40, 41).unwrap();
    let found = history.next(10, 1 << 20).unwrap();
    assert_eq!(found.iter().map(|message| message.body.as_str()).collect::<Vec<_>>(), ["fresh"]);
    assert!(history.next(10, 1 << 20).unwrap().is_empty());
}
