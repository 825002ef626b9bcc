//! Looks: a question to a machine, and its answer, which nothing stores.
//!
//! A replica that has a stream of the machine takes the question and sends it, once. Any replica takes the answer, and wakes the one on
//! which the asker waits.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_chassis::shares::Shares;
use ensemble_store_kit::{Conn, Db, Subscription, Topic};
use ensemble_types::ids::{LookId, UserId};
use ensemble_types::looks::LookQuestion;
use tokio::time::{Instant, sleep_until};

use super::hints::HintReaders;
use super::look_table::LookTable;
use super::read_session;
use crate::SessionStore;
use crate::domain::access::{Actor, Refusal};
use crate::domain::look::{Asked, NoMachine, Progress, Target, Whose};
use crate::error::Error;
use crate::store;

/// The looks of one account that wait at once, and those of all: an answer has up to 1 MiB.
const MOST_OF_CALLER: usize = 8;
const MOST: usize = 1_024;
/// A machine whose stream no replica has sent the question to after this time has none.
const SENT_WITHIN: Duration = Duration::from_secs(2);
/// A look whose asker has gone is removed after its time and this.
const SPARE: Duration = Duration::from_secs(5);

/// The looks on their way. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Looks {
    table: Arc<LookTable>,
    places: Arc<Shares<UserId>>,
    wait: Duration,
}

impl Looks {
    /// `peers`: the database of the other replicas, if there may be some. `wait`: for how long an asker waits.
    pub(crate) fn new(peers: Option<Db>, wait: Duration) -> Self {
        Self { table: Arc::new(LookTable::new(peers, wait)), places: Shares::new(MOST_OF_CALLER, MOST), wait }
    }
}

/// Asks the machine and waits for its answer.
pub(crate) async fn ask(
    service: &SessionStore,
    caller: Actor,
    target: Target,
    question: LookQuestion,
) -> Result<String, Error> {
    let looks = &service.looks;
    let place = looks.places.take(caller.user).ok_or(Error::TooManyLooks)?;
    let whose = machine_of(service, caller, target).await?;
    if !looks.table.has_peers() && !service.hint_readers.has_machine(whose.owner, whose.machine.as_str()) {
        return Err(Error::MachineAway);
    }
    let (looks, db, drain) = (looks.clone(), service.db.clone(), service.drain.clone());
    let asked = Asked { id: LookId::generate(), whose, question };
    // In a task of its own: what is kept of a look counts as one of its caller also when the connection of the asker has ended.
    let answered = tokio::spawn(async move {
        let _place = place;
        in_turn(&looks, asked, &db, &drain).await
    });
    answered.await.map_err(|_| Error::Stopping)?
}

/// Keeps the look for as long as someone could wait for it.
async fn in_turn(looks: &Looks, asked: Asked, db: &Db, drain: &Drain) -> Result<String, Error> {
    let (id, notifier) = (asked.id, db.notifier());
    let mut changes = notifier.subscribe(topic(id));
    looks.table.insert(asked).await?;
    notifier.publish([asked_topic()]);
    let answered = wait(looks, id, &mut changes, drain).await;
    looks.table.remove(id).await?;
    answered
}

async fn machine_of(service: &SessionStore, caller: Actor, target: Target) -> Result<Whose, Error> {
    match target {
        Target::Machine(machine) => {
            service.peers.require_machine(caller.user, &machine).await?;
            Ok(Whose { owner: caller.user, machine, session: None })
        }
        Target::Session(id) => {
            let read = move |c: &mut Conn| {
                let (session, access) = read_session(c, id, &caller)?;
                Whose::of_session(id, session.ownership(), &access).map_err(|why| match why {
                    NoMachine::Refused(refusal) => refusal.into(),
                    NoMachine::NotHosted => Error::NotHosted,
                })
            };
            service.db.read("find the machine to look at", read).await
        }
    }
}

async fn wait(looks: &Looks, id: LookId, changes: &mut Subscription, drain: &Drain) -> Result<String, Error> {
    let begun = Instant::now();
    let mut deadline = begun + SENT_WITHIN.min(looks.wait);
    loop {
        tokio::select! {
            () = changes.changed() => {}
            () = sleep_until(deadline) => {}
            () = drain.closing() => return Err(Error::Stopping),
        }
        let is_late = Instant::now() >= deadline;
        match looks.table.progress(id).await? {
            Progress::Answered(answer) => return Ok(answer),
            Progress::Sent if Instant::now() < begun + looks.wait => deadline = begun + looks.wait,
            Progress::Waiting if !is_late => {}
            Progress::Sent | Progress::Waiting => return Err(Error::MachineAway),
        }
    }
}

/// Takes the answer of the machine that was asked, once.
pub(crate) async fn answer(service: &SessionStore, caller: Actor, id: LookId, answer: String) -> Result<(), Error> {
    let looks = &service.looks;
    let Some(machine) = &caller.machine else {
        let whose = looks.table.find(id).await?.ok_or(Refusal::NotFound)?;
        return Err(if sees(service, &caller, &whose).await? { Error::HostOnly } else { Refusal::NotFound.into() });
    };
    if !looks.table.answer(id, (caller.user, machine), answer).await? {
        return Err(Refusal::NotFound.into());
    }
    service.db.notifier().publish([topic(id)]);
    Ok(())
}

/// Whether a person may know of a look at this machine.
async fn sees(service: &SessionStore, caller: &Actor, whose: &Whose) -> Result<bool, Error> {
    let Some(session) = whose.session.filter(|_| caller.user != whose.owner) else {
        return Ok(caller.user == whose.owner);
    };
    let user = caller.user;
    let level =
        service.db.read("find who sees a look", move |c| Ok::<_, Error>(store::shares::level(c, session, user)?));
    Ok(level.await?.is_some())
}

/// Completes when there are new looks.
pub(crate) fn subscribe(db: &Db) -> Subscription {
    db.notifier().subscribe(asked_topic())
}

/// Sends the new looks to the machines that have a stream here.
pub(crate) async fn relay(db: &Db, looks: &Looks, readers: &HintReaders) -> Result<(), Error> {
    for asked in looks.table.take(|owner, machine| readers.has_machine(owner, machine)).await? {
        let topic = topic(asked.id);
        readers.give_look(asked);
        db.notifier().publish([topic]);
    }
    Ok(())
}

/// Removes the looks whose asker has gone.
pub(crate) async fn remove_old(looks: &Looks) -> Result<(), Error> {
    looks.table.remove_old(looks.wait + SPARE).await
}

/// Notified when a look is sent or answered.
fn topic(id: LookId) -> Topic {
    Topic::new("look", id)
}

fn asked_topic() -> Topic {
    Topic::new("looks", "asked")
}
