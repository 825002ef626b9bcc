//! Which machines have confirmed that a removed device may command no longer.

use std::pin::pin;
use std::time::Duration;

use ensemble_client::devices::List;
use ensemble_client::{Known, Result};
use ensemble_types::hints::{Hint, HintKind};
use ensemble_types::ids::MachineId;
use ensemble_types::machines::Machine;
use ensemble_types::time::Timestamp;
use futures_util::{Stream, StreamExt, TryStreamExt};
use tokio::time::{Instant, timeout_at};

use crate::account::Account;

/// A machine that is there confirms within this time.
pub const WITHIN: Duration = Duration::from_secs(20);
/// A machine that was there in this time is waited for.
const LATELY: Duration = Duration::from_secs(3600);

/// A machine that may still obey a device that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    pub id: MachineId,
    /// The server says that it is there, or was within the last hour.
    pub was_there: bool,
}

/// All machines that have to confirm the last removal: nothing is known of what they say.
pub fn unknown(list: &List) -> Vec<Unconfirmed> {
    let open = list.unconfirmed(|_| None);
    open.into_iter().map(|id| Unconfirmed { id: id.clone(), was_there: true }).collect()
}

/// The machines of the account that have not confirmed the last removal of its list.
pub async fn unconfirmed(me: &Account) -> Result<Vec<Unconfirmed>> {
    let list = &me.own().list;
    if list.unconfirmed(|_| None).is_empty() {
        return Ok(Vec::new());
    }
    let machines: Vec<Machine> = me.client.machines().try_collect().await?;
    // Another device may have changed the list since, and the machine was faster.
    let is_newer = |machine: &Machine| machine.seen.as_ref().is_some_and(|seen| seen.version > list.version());
    let newer = match machines.iter().any(is_newer) {
        true => me.client.newest_list(me.id, Known::List(list)).await?,
        false => None,
    };
    Ok(judged(newer.as_ref().unwrap_or(list), &machines, me.client.now()))
}

fn judged(list: &List, machines: &[Machine], now: Timestamp) -> Vec<Unconfirmed> {
    let get = |id: &MachineId| machines.iter().find(|machine| machine.id == *id);
    let open = list.unconfirmed(|id| get(id)?.seen.as_ref());
    let was_there = |machine: &Machine| {
        let is_recent = |at| now.since(at) < LATELY;
        // A machine without a runner sends no heartbeat. It says which list it obeys when it begins a session.
        let knew_last = || machine.seen.as_ref().is_some_and(|seen| seen.version.saturating_add(1) >= list.version());
        machine.online || machine.last_active_at.map_or_else(knew_last, is_recent)
    };
    open.into_iter().map(|id| Unconfirmed { id: id.clone(), was_there: get(id).is_some_and(was_there) }).collect()
}

/// The same after each machine that was there lately has confirmed, or after [`WITHIN`]. What cannot be found out is not confirmed.
pub async fn awaited(me: &Account) -> Vec<Unconfirmed> {
    let deadline = Instant::now() + WITHIN;
    let mut hints = pin!(me.client.follow_hints());
    let mut open = unknown(&me.own().list);
    loop {
        open = unconfirmed(me).await.unwrap_or(open);
        if !open.iter().any(|machine| machine.was_there) || timeout_at(deadline, changed(&mut hints)).await.is_err() {
            return open;
        }
    }
}

/// Waits until a machine may have changed. Without hints it waits for ever.
async fn changed(hints: &mut (impl Stream<Item = Result<Hint>> + Unpin)) {
    while let Some(Ok(hint)) = hints.next().await {
        if matches!(hint.kind, HintKind::Machine | HintKind::All) {
            return;
        }
    }
    std::future::pending().await
}
