//! Who may have this machine do something, when, and how often.

use std::time::Duration;

use ensemble_client::devices::{List, sign_list};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{BoxKeyPair, SealError, SessionTask, SignedTask, TaskAction, open_task, seal_task};
use ensemble_types::changes::{OrderOutcome, OrderResult};
use ensemble_types::devices::{DeviceList, ListedDevice, Role};
use ensemble_types::ids::{MachineId, RunId, SessionId, TaskId, UserId};
use ensemble_types::leases::Lease;
use ensemble_types::runs::{Permission, Provider, TaskSession};
use ensemble_types::text::Text;
use ensemble_types::time::Timestamp;

use super::check::{Refused, check};
use super::clear_tests::{lease, order};
use super::nonces::{Nonces, Once};

const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn now() -> Timestamp {
    Timestamp::from_unix_seconds(1_800_000_000)
}

fn before(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_micros(at.micros() - i64::try_from(by.as_micros()).unwrap())
}

/// An account with three devices, one that was removed, and a machine.
pub(super) struct Account {
    pub(super) owner: UserId,
    pub(super) machine: MachineId,
    pub(super) primary: AccountKey,
    pub(super) linked: AccountKey,
    pub(super) removed: AccountKey,
    pub(super) recovery: AccountKey,
    pub(super) runner: AccountKey,
    pub(super) list: List,
}

impl Account {
    pub(super) fn new() -> Self {
        let key = AccountKey::generate;
        let (primary, linked, removed, recovery, runner) = (key(), key(), key(), key(), key());
        let machine = MachineId::generate();
        let entry = |key: &AccountKey, role: Role| ListedDevice {
            key: key.public_key(),
            box_key: BoxKeyPair::of_device(key).unwrap().public().to_text(),
            role,
            machine_id: (role == Role::Machine).then(|| machine.clone()),
            name: None,
            by: None,
        };
        let (content, next) = (BoxKeyPair::of_device(&key()).unwrap(), BoxKeyPair::of_device(&key()).unwrap());
        let first = DeviceList {
            account: primary.public_key(),
            version: 1,
            prev: None,
            created: now(),
            content_epoch: 1,
            content_public_key: content.public().to_text(),
            devices: vec![entry(&primary, Role::Primary), entry(&removed, Role::Primary)],
        };
        let first_list = List::first(&sign_list(&first, &primary).unwrap(), &primary.public_key()).unwrap();
        let second = DeviceList {
            version: 2,
            prev: Some(first_list.digest_text()),
            content_epoch: 2,
            content_public_key: next.public().to_text(),
            devices: vec![
                entry(&primary, Role::Primary),
                entry(&linked, Role::Linked),
                entry(&recovery, Role::Recovery),
                entry(&runner, Role::Machine),
            ],
            ..first
        };
        let list = first_list.next(&sign_list(&second, &primary).unwrap()).unwrap();
        Self { owner: UserId::generate(), machine, primary, linked, removed, recovery, runner, list }
    }

    /// What this key has signed for the machine, as the machine reads it.
    fn signed(&self, task: &SessionTask, by: &AccountKey) -> SignedTask {
        self.opened(&serde_json::to_string(task).unwrap(), by).unwrap()
    }

    fn opened(&self, body: &str, by: &AccountKey) -> Result<SignedTask, SealError> {
        let boxed = BoxKeyPair::of_device(&self.runner).unwrap();
        let sealed = seal_task(body, &boxed.public(), (self.owner, &self.machine), by).unwrap();
        open_task(&sealed, &boxed, (self.owner, &self.machine))
    }

    fn check(&self, task: &SessionTask, by: &AccountKey) -> Result<SessionTask, &'static str> {
        check(&self.signed(task, by), &self.list, (&lease_of(task), TaskSession::Start), now())
            .map_err(|refused| refused.code)
    }
}

/// The lease of a task for claude, with its ids.
fn lease_of(task: &SessionTask) -> Lease {
    Lease { run_id: task.run_id, task_id: task.task_id, ..lease(None) }
}

fn task() -> SessionTask {
    SessionTask {
        run_id: RunId::generate(),
        task_id: TaskId::generate(),
        session: TaskSession::Start,
        prompt: None,
        session_id: SessionId::generate(),
        provider: Provider::Claude,
        working_directory: "/w".to_owned(),
        mode: Permission::Ask,
        model: None,
        title: None,
        max_cost_usd: None,
        nonce: SessionTask::nonce(),
        at: now(),
        expires: now().plus(HOUR),
    }
}

#[test]
fn only_a_primary_or_linked_device_of_the_newest_list_signs() {
    let account = Account::new();
    let task = task();
    assert_eq!(account.check(&task, &account.primary), Ok(task.clone()));
    assert_eq!(account.check(&task, &account.linked), Ok(task.clone()));
    for (who, key) in [
        ("a stranger", &AccountKey::generate()),
        ("the machine itself", &account.runner),
        ("the words on paper", &account.recovery),
        ("a removed device", &account.removed),
    ] {
        assert_eq!(account.check(&task, key), Err("TASK_NOT_SIGNED"), "{who}");
    }
}

#[test]
fn only_a_primary_device_lets_an_agent_do_everything() {
    let account = Account::new();
    for mode in [Permission::Ask, Permission::Edit, Permission::Plan] {
        assert!(account.check(&SessionTask { mode, ..task() }, &account.linked).is_ok(), "{mode}");
    }
    let bypass = SessionTask { mode: Permission::Bypass, ..task() };
    assert_eq!(account.check(&bypass, &account.linked), Err("TASK_NOT_SIGNED"));
    assert!(account.check(&bypass, &account.primary).is_ok());
}

#[test]
fn a_task_is_good_for_its_provider_and_its_time() {
    let account = Account::new();
    let code = |task: SessionTask| account.check(&task, &account.primary).err();
    assert_eq!(code(SessionTask { provider: Provider::Codex, ..task() }), Some("TASK_NOT_SIGNED"));
    let (minute, week) = (Duration::from_secs(60), HOUR * 24 * 7);
    let at = |at: Timestamp, expires: Timestamp| code(SessionTask { at, expires, ..task() });
    let long_ago = before(now(), week);
    assert_eq!(at(long_ago, now().plus(minute)), Some("EXPIRED"), "good for longer than a week");
    assert_eq!(at(long_ago.plus(minute), now().plus(minute)), None);
    assert_eq!(at(long_ago, now()), Some("EXPIRED"));
    assert_eq!(at(now().plus(minute * 5), now().plus(HOUR)), None, "clocks differ");
    assert_eq!(at(now().plus(minute * 6), now().plus(HOUR)), Some("EXPIRED"), "from the future");
}

#[test]
fn a_refusal_because_of_the_time_names_the_clock_that_is_wrong() {
    let account = Account::new();
    let signed = |task: SessionTask| {
        let opened = account.signed(&task, &account.primary);
        check(&opened, &account.list, (&lease_of(&task), TaskSession::Start), now()).unwrap_err()
    };
    let early = || signed(SessionTask { at: now().plus(HOUR / 6), expires: now().plus(HOUR), ..task() });
    let said = early().with_clock(-600).sentence;
    assert!(
        said.contains("10 min in the future") && said.contains("of the machine is 10 min behind the server's: set it"),
        "{said}"
    );
    let said = early().with_clock(0).sentence;
    assert!(said.contains("of the machine agrees") && said.contains("of the device that signed it"), "{said}");
    let late = signed(SessionTask { at: before(now(), HOUR), expires: before(now(), HOUR / 6), ..task() });
    let said = late.with_clock(900).sentence;
    assert!(said.contains("ran out 10 min ago") && said.contains("15 min ahead of the server's"), "{said}");
    let long = signed(SessionTask { at: now(), expires: now().plus(HOUR * 24 * 8), ..task() });
    assert!(!long.with_clock(900).sentence.contains("set it"), "no clock is wrong");
}

#[test]
fn what_is_not_known_is_not_done() {
    let account = Account::new();
    // A prompt is for a turn, and a turn needs one. The server does not make one of the other.
    let prompt = |text: &str| Some(text.to_owned());
    for (session, prompt, said, expected) in [
        (TaskSession::Turn, prompt("p"), TaskSession::Turn, None),
        (TaskSession::Turn, None, TaskSession::Turn, Some("TASK_NOT_SUPPORTED")),
        (TaskSession::Turn, prompt(" "), TaskSession::Turn, Some("TASK_NOT_SUPPORTED")),
        (TaskSession::Start, prompt("p"), TaskSession::Start, Some("TASK_NOT_SUPPORTED")),
        (TaskSession::Turn, prompt("p"), TaskSession::Start, Some("TASK_NOT_SIGNED")),
        (TaskSession::Start, None, TaskSession::Turn, Some("TASK_NOT_SIGNED")),
    ] {
        let task = SessionTask { session, prompt, ..task() };
        let checked = check(&account.signed(&task, &account.primary), &account.list, (&lease_of(&task), said), now());
        assert_eq!(checked.err().map(|refused| refused.code), expected, "{session:?} as {said:?}");
    }
    let task = task();
    let with_more = serde_json::to_string(&task).unwrap().replace("\"mode\"", "\"sandbox\":true,\"mode\"");
    let opened = account.opened(&with_more, &account.primary).unwrap();
    let refused = check(&opened, &account.list, (&lease_of(&task), TaskSession::Start), now()).unwrap_err();
    assert_eq!(refused.code, "TASK_NOT_SUPPORTED");
    // What is wrong is said here only.
    assert!(refused.why.contains("sandbox") && !refused.sentence.contains("sandbox"));
}

#[test]
fn a_sealed_task_is_done_under_the_ids_that_were_signed() {
    let account = Account::new();
    let task = task();
    let signed = account.signed(&task, &account.primary);
    let good = lease_of(&task);
    let code = |lease: &Lease| {
        check(&signed, &account.list, (lease, TaskSession::Start), now()).err().map(|refused| refused.code)
    };
    assert_eq!(code(&good), None);
    assert_eq!(code(&Lease { task_id: TaskId::generate(), ..good.clone() }), Some("TASK_NOT_SIGNED"), "another task");
    assert_eq!(code(&Lease { run_id: RunId::generate(), ..good }), Some("TASK_NOT_SIGNED"), "another run");
}

async fn take(nonces: &Nonces, task: &SessionTask, id: TaskId, at: Timestamp) -> Result<(), &'static str> {
    let once = Once { nonce: &task.nonce, digest: "d", at: task.at, expires: task.expires, is_order: false };
    nonces.take(&once, id, at).await.map_err(|Refused { code, .. }| code)
}

#[tokio::test]
async fn a_task_is_done_under_one_id() {
    let folder = tempfile::tempdir().unwrap();
    let nonces = Nonces::open(folder.path(), before(now(), HOUR)).unwrap();
    let (first, other) = (TaskId::generate(), TaskId::generate());
    let task = task();
    assert_eq!(take(&nonces, &task, first, now()).await, Ok(()));
    assert_eq!(take(&nonces, &task, first, now()).await, Ok(()), "another attempt of the same task");
    assert_eq!(take(&nonces, &task, other, now()).await, Err("TASK_NOT_SIGNED"));
    // Also after a restart, and after another task has let it forget what has expired.
    drop(nonces);
    let nonces = Nonces::open(folder.path(), now()).unwrap();
    let later = now().plus(HOUR * 24);
    let next = SessionTask { at: later, expires: later.plus(HOUR), nonce: SessionTask::nonce(), ..task.clone() };
    assert_eq!(take(&nonces, &next, TaskId::generate(), later).await, Ok(()));
    assert_eq!(take(&nonces, &task, other, later).await, Err("TASK_NOT_SIGNED"));
    assert_eq!(take(&nonces, &task, first, later).await, Ok(()));
    for nonce in ["", "short", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAA/A"] {
        let bad = SessionTask { nonce: nonce.to_owned(), ..task.clone() };
        assert_eq!(take(&nonces, &bad, first, now()).await, Err("TASK_NOT_SIGNED"), "{nonce:?}");
    }
}

#[tokio::test]
async fn an_id_has_one_task_and_what_was_said_about_it() {
    let folder = tempfile::tempdir().unwrap();
    let nonces = Nonces::open(folder.path(), before(now(), HOUR)).unwrap();
    let (id, task) = (TaskId::generate(), task());
    assert_eq!(take(&nonces, &task, id, now()).await, Ok(()));
    let another = SessionTask { nonce: SessionTask::nonce(), ..task.clone() };
    assert_eq!(take(&nonces, &another, id, now()).await, Err("TASK_NOT_SIGNED"), "one with other permissions, perhaps");
    let order = SessionTask::nonce();
    let once = Once { nonce: &order, digest: "o", at: now(), expires: now().plus(HOUR), is_order: true };
    nonces.take(&once, id, now()).await.unwrap();
    assert!(nonces.was_taken(&task.nonce, id, "d").await && !nonces.was_taken(&order, id, "o").await);
    assert!(!nonces.was_taken(&task.nonce, id, "e").await, "another text under its nonce");
    let other = Once { digest: "e", ..Once { nonce: &task.nonce, is_order: false, ..once } };
    assert_eq!(nonces.take(&other, id, now()).await.unwrap_err().code, "TASK_NOT_SIGNED");
    let as_task = Once { is_order: false, ..once };
    assert_eq!(nonces.take(&as_task, id, now()).await.unwrap_err().code, "TASK_NOT_SIGNED", "an order is no task");

    // The conversation is that of this task alone, also after a restart.
    assert_eq!(nonces.conversation(id).await, None);
    nonces.worked_in(id, "c-1").await.unwrap();
    nonces.worked_in(TaskId::generate(), "c-2").await.unwrap();
    drop(nonces);
    // What a kill has cut off was not answered.
    let log = folder.path().join("tasks.log");
    let torn = [std::fs::read(&log).unwrap(), b"{\"nonce\":\"".to_vec()].concat();
    std::fs::write(&log, torn).unwrap();
    let nonces = Nonces::open(folder.path(), now()).unwrap();
    assert_eq!(nonces.conversation(id).await.as_deref(), Some("c-1"));
    assert!(nonces.was_taken(&task.nonce, id, "d").await && !log.exists());
}

#[tokio::test]
async fn an_order_is_carried_out_once() {
    let folder = tempfile::tempdir().unwrap();
    let nonces = Nonces::open(folder.path(), now()).unwrap();
    let (id, at) = (TaskId::generate(), now());
    let order = order(&Account::new(), TaskAction::Apply, id, "d");
    let once = Once { nonce: &order.nonce, digest: "o", at, expires: at.plus(HOUR), is_order: true };
    nonces.take(&once, id, at).await.unwrap();
    assert!(nonces.result(&order.nonce).await.is_none(), "a process that was killed has not carried it out");
    let failed = OrderResult { outcome: OrderOutcome::Failed, files: Vec::new(), reason: None };
    nonces.carried_out(&order.nonce, &failed).await.unwrap();
    assert!(nonces.result(&order.nonce).await.is_none(), "one that failed has changed nothing");
    let files = (0..100).map(|n| Text::new(format!("f{n}")).unwrap()).collect();
    let result = OrderResult { outcome: OrderOutcome::Conflicted, files, reason: None };
    nonces.carried_out(&order.nonce, &result).await.unwrap();
    nonces.take(&once, id, at).await.unwrap();
    let known = nonces.result(&order.nonce).await.unwrap();
    assert_eq!((known.outcome, known.files.len(), &*known.files[0]), (OrderOutcome::Conflicted, 16, "f0"));
    // Also by the next process.
    let nonces = Nonces::open(folder.path(), at).unwrap();
    assert_eq!(nonces.result(&order.nonce).await.unwrap().outcome, OrderOutcome::Conflicted);
    assert!(nonces.result(&SessionTask::nonce()).await.is_none());
}

#[tokio::test]
async fn a_new_machine_does_what_was_signed_before_its_first_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sessions")).unwrap();
    let nonces = Nonces::open(folder.path(), now().plus(HOUR)).unwrap();
    assert_eq!(take(&nonces, &task(), TaskId::generate(), now()).await, Ok(()));
}

#[tokio::test]
async fn a_machine_that_has_lost_its_memory_does_nothing_from_before() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pid"), "1").unwrap();
    let nonces = Nonces::open(folder.path(), now().plus(HOUR)).unwrap();
    let later = now().plus(HOUR * 2);
    assert_eq!(take(&nonces, &task(), TaskId::generate(), later).await, Err("EXPIRED"));
    let new = SessionTask { at: later, expires: later.plus(HOUR), ..task() };
    assert_eq!(take(&nonces, &new, TaskId::generate(), later).await, Ok(()));
    // What cannot be read is not taken for nothing.
    std::fs::write(folder.path().join("tasks.json"), "{").unwrap();
    assert!(Nonces::open(folder.path(), later).is_err());
}
