//! What a person should know while something else is done.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ensemble_protocol::transcript::words::May;
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::refs::Ref;
use ensemble_types::shares::ShareLevel;
use ensemble_types::time::Timestamp;

use crate::error::Error;

#[derive(Debug)]
pub enum Notice {
    /// Another account was used at this server until now. `account` begins a sentence.
    AnotherAccount {
        account: String,
        origin: String,
    },
    /// The server keeps back names of the account's devices, so a new one gets none.
    NamesKeptBack,
    /// The computer of a new machine is no device of the account.
    ComputerNotListed,
    /// The file of kept lists cannot be read. Until the next lists this device cannot give them to a server that was restored.
    KeptListsLost {
        path: PathBuf,
        why: Error,
    },
    /// The server had lost lists, and has them again.
    ListsRestored,
    /// The entry of this machine in the list stays as it is.
    MachineNotListed(Error),
    /// The list is full, so the machine has no entry.
    ListFull {
        most: usize,
    },
    /// The server calls this machine new, although the list has its key.
    MachineForgotten(MachineId),
    /// The account has removed the key of this machine, which gets another one. The removed one is in this file.
    MachineKeyRemoved(PathBuf),
    /// Only a primary device takes the machine's entry from the list.
    MachineStaysListed,

    /// People have not got a key yet. The next command tries again.
    KeyNotPassedOn(Error),
    /// A user cannot be given a key.
    KeyNotGiven {
        user: UserId,
        why: Error,
    },
    /// A user is named by the server, and by no signature.
    LeftOut {
        user: UserId,
        session: SessionId,
        why: Error,
    },
    /// Something else of this user is at what only one may do at a time.
    WaitingForProgram(&'static str),
    /// The server asks for a key too often.
    NextKey {
        session: Ref,
        at: Timestamp,
    },
    /// A guest has removed devices twice within an hour.
    NextKeyOfGuest {
        user: UserId,
        session: Ref,
        at: Option<Timestamp>,
    },

    /// The agent asks its owner before it does what others prompt, because it asks little else.
    AgentAsksLittle,
    /// The machine does this for a person from now on.
    MachineObeys(May),
    /// The machine is offline and does what it last knew.
    MachineAway,
    /// A machine is asked again to refuse a person.
    RefusalRepeated {
        user: UserId,
        session: Ref,
    },
    /// What a removed device has let people do could not be read.
    RightsUnknown {
        session: Ref,
        why: Error,
    },
    /// The machine is asked to take back or keep a right that a removed device had given.
    RightSettled {
        person: String,
        may: May,
        session: Ref,
        is_kept: bool,
    },
    /// It was not looked for in this many sessions.
    RightsNotSearched(usize),
    /// What a removed device has shared stays shared, because the owner wants that.
    ShareKept {
        person: String,
        level: ShareLevel,
        session: Ref,
    },

    /// A removal, of this device or another program, continues.
    FinishingRemoval,
    RemovalUnfinished(Error),
    /// How long services may still accept what a removed device signs.
    WaitingForServices(Duration),
    /// What the devices of the account share cannot be read, so it starts empty.
    SharedStateLost(Error),
    SharedStateNotKept(Error),
    RevocationUnfinished(Error),
    KeysUnfinished(Error),
    /// A session from which a person was removed has no new key yet, so nothing is written there.
    GuestKeepsKey(Error),
    /// The server shows an older key of an own session than was used here. `is_replaced`: it has new ones for them.
    KeysLost {
        session: Ref,
        lost: u32,
        is_replaced: bool,
    },
    /// The server calls a session missing of which something is not finished.
    SessionMissing(SessionId),
    SessionWithoutNewKey {
        session: Ref,
        why: Error,
    },
    SessionsDone {
        done: usize,
        of: usize,
    },
    SharesMayEnd {
        session: Ref,
        why: Error,
    },
    /// Shares in this many sessions end with the next key.
    SharesEnd(usize),
    MachineWithoutNewKey {
        machine: Ref,
        why: Error,
    },
    MachinesWithoutNewKeys(Error),
    TitlesMayBeLost(Error),
    /// What was just used is not remembered as the last one.
    LastNotKept(Error),

    /// A machine may refuse a task in bypass that this device has signed.
    BypassOfLinked,
}

/// Where notices go. They come while work is done, so it must not block.
#[derive(Clone)]
pub struct Notices(Arc<dyn Fn(&Notice) + Send + Sync>);

impl Notices {
    pub fn to(sink: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    pub fn none() -> Self {
        Self::to(|_| {})
    }

    pub(crate) fn say(&self, notice: &Notice) {
        (self.0)(notice);
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}
