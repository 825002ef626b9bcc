//! What the clients saw, and whether it can all be true at once.
//!
//! A request whose answer was lost is neither a success nor a failure: it may have happened. Only what was answered binds.

use std::collections::{BTreeMap, HashMap, HashSet};

use sha2::{Digest, Sha256};

/// One message as a client was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) session: String,
    pub(crate) id: String,
    pub(crate) seq: u64,
    pub(crate) local_id: String,
    pub(crate) digest: [u8; 32],
}

impl Told {
    pub(crate) fn from_json(session: &str, message: &serde_json::Value) -> Option<Self> {
        Some(Self {
            session: session.to_owned(),
            id: message.get("id")?.as_str()?.to_owned(),
            seq: message.get("seq")?.as_u64()?,
            local_id: message.get("localId")?.as_str()?.to_owned(),
            digest: Sha256::digest(message.get("content")?.as_str()?).into(),
        })
    }
}

/// Everything that was answered.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Appends that were acknowledged, replays among them.
    pub(crate) acknowledged: Vec<Told>,
    /// For each reader, in the order in which it saw them.
    pub(crate) seen: Vec<Vec<Told>>,
    /// Version of the metadata → the values whose PATCH was answered with it.
    pub(crate) versions: BTreeMap<u64, Vec<String>>,
    /// Uses of the public link that got in.
    pub(crate) uses: u64,
    pub(crate) max_uses: u64,
    /// Answers that nobody may get: the status, and to what.
    pub(crate) strange: Vec<String>,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
}

impl History {
    /// What is wrong, in the names of the invariants; nothing when all is well. `stored` is the log of each session, read
    /// when all was quiet again.
    pub(crate) fn faults(&self, stored: &HashMap<String, Vec<Told>>) -> Vec<String> {
        let mut faults = self.strange.clone();
        for (session, log) in stored {
            let mut ids = HashSet::new();
            let mut locals = HashSet::new();
            for (at, message) in log.iter().enumerate() {
                if message.seq != at as u64 + 1 {
                    faults.push(format!("M3: {session} has seq {} in place {}", message.seq, at + 1));
                    break;
                }
                if !ids.insert(&message.id) || !locals.insert(&message.local_id) {
                    faults.push(format!("M2: {session} holds {} twice", message.local_id));
                }
            }
        }
        for told in &self.acknowledged {
            let place = usize::try_from(told.seq).unwrap_or(0).wrapping_sub(1);
            match stored.get(&told.session).and_then(|log| log.get(place)) {
                Some(kept) if kept == told => {}
                Some(kept) => faults.push(format!("M1/M6: acknowledged {told:?}, stored {kept:?}")),
                None => faults.push(format!("M1: acknowledged and lost: {told:?}")),
            }
        }
        for (reader, seen) in self.seen.iter().enumerate() {
            for (before, after) in seen.iter().zip(seen.iter().skip(1)) {
                if after.seq != before.seq + 1 {
                    faults.push(format!("M4: reader {reader} saw {} after {}", after.seq, before.seq));
                }
            }
            for told in seen {
                let place = usize::try_from(told.seq).unwrap_or(0).wrapping_sub(1);
                if stored.get(&told.session).and_then(|log| log.get(place)) != Some(told) {
                    faults.push(format!("M1: reader {reader} saw {told:?}, which is not there"));
                }
            }
        }
        for (version, winners) in &self.versions {
            if winners.len() > 1 {
                faults.push(format!("R1: version {version} was answered to {winners:?}"));
            }
        }
        if self.uses > self.max_uses {
            faults.push(format!("P1: {} uses of a link for {}", self.uses, self.max_uses));
        }
        faults
    }
}
