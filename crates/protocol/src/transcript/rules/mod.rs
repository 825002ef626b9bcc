//! Who may command: the decision about each command that reaches the host. It needs no clock and no device list; both are
//! passed in.
//!
//! docs/TRANSCRIPT.md has the table. A command is taken once, and not late. One that was rejected is not taken later.

mod access;
mod limits;
mod memory;
mod table;
#[cfg(test)]
mod tests;

use ensemble_types::devices::Role;
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

pub use access::{Access, time_of};
pub use limits::Limits;
pub use memory::{MOST_TAKEN, Memory, Taken};
pub use table::{Right, may};

use crate::transcript::body::{Answer, Content, Control, Message, PermissionOption};
use crate::transcript::words::{May, Mode, OptionKind, ReceiptCode};

/// Who signed a command, as the caller has found in the newest device lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    pub user: UserId,
    /// The public key.
    pub key: String,
    /// Of the key in the list of `user`. `None`: it is in no list, or was removed.
    pub role: Option<Role>,
    /// SHA-256 (base64url) of the account key with which the list of `user` begins.
    pub account: String,
}

/// A request of the agent that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// Of the host's own message.
    pub digest: String,
    /// Of a permission request; `None` for a question.
    pub options: Option<Vec<PermissionOption>>,
}

/// What the session is doing when a command arrives.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    pub mode: &'a Mode,
    /// The session has ended.
    pub ended: bool,
    /// The epoch of the key that the command was sealed with, and the newest of the session.
    pub epoch: u32,
    pub newest_epoch: u32,
    /// Where the agent works, as `state.directory` says it.
    pub directory: &'a str,
    /// The request that an answer names, when it is open.
    pub open: Option<&'a OpenRequest>,
    /// The server does not show the newest device list of the owner, so it may have been signed by a device that was removed.
    pub list_is_withheld: bool,
    /// The session has a newer key than the host, so a person may have lost a right without the host's knowledge.
    pub key_is_missing: bool,
}

/// What is done with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The host does it.
    Take,
    /// A prompt of a guest in a mode that asks nothing: the owner is asked first.
    AskOwner,
    Reject(ReceiptCode),
    /// Nothing, without a receipt: strangers have sent too many.
    Ignore,
}

/// All that the host remembers about commands of one session. It is kept in the spool.
#[derive(Clone, Debug)]
pub struct Rules {
    owner: UserId,
    /// What the owner has said about guests.
    pub access: Access,
    /// The commands that got a receipt.
    pub memory: Memory,
    limits: Limits,
}

impl Rules {
    /// Whose session it is.
    pub fn owner(&self) -> UserId {
        self.owner
    }

    /// For a session of this owner that begins now.
    pub fn new(owner: UserId) -> Self {
        Self { owner, access: Access::default(), memory: Memory::default(), limits: Limits::default() }
    }

    /// From what the spool has kept.
    pub fn kept(owner: UserId, access: Access, memory: Memory) -> Self {
        Self { owner, access, memory, limits: Limits::default() }
    }

    /// After the loss of the spool: nothing from before is taken.
    pub fn lost(owner: UserId, access: Access, at: Timestamp) -> Self {
        Self { owner, access, memory: Memory::lost(at), limits: Limits::default() }
    }

    /// Decides about a command whose signature is good. What gets a receipt is remembered, and is returned when it was not before, for the
    /// disk. An `access` is noted.
    ///
    /// Called once for each message of the server: a second call rejects it as repeated.
    pub fn decide(
        &mut self,
        message: &Message,
        signer: &Signer,
        situation: &Situation<'_>,
        now: Timestamp,
    ) -> (Decision, Option<Taken>) {
        let is_listed = matches!(signer.role, Some(Role::Primary | Role::Linked));
        let has_place = is_listed && (signer.user == self.owner || self.memory.has_place(signer.user, now));
        if !has_place && !self.has_place_for_unknown(message.at, now) {
            return (Decision::Ignore, None);
        }
        let at = memory::remembered_at(&message.content, message.at, now);
        if has_place && memory::is_early(at, now) && !self.memory.has_place_for_early(signer.user, now) {
            return (Decision::Ignore, None);
        }
        let mut command = Taken {
            user: has_place.then_some(signer.user),
            key: signer.key.clone(),
            local_id: message.local_id.clone(),
            at,
            taken: now,
            rejected: None,
        };
        let checked = match (is_listed, has_place) {
            (false, _) => Err(ReceiptCode::UnknownKey),
            (true, false) => Err(ReceiptCode::Busy),
            (true, true) => self.check(message, signer, situation, &command),
        };
        command.rejected = checked.as_ref().err().cloned();
        let is_new = command.rejected != Some(ReceiptCode::Repeated) && self.memory.remember(command.clone());
        (checked.unwrap_or_else(Decision::Reject), is_new.then_some(command))
    }

    /// Whether there is a place for a command that is remembered among those of keys in no list. One from the future would keep its
    /// place until then.
    fn has_place_for_unknown(&mut self, at: Timestamp, now: Timestamp) -> bool {
        !memory::is_early(at, now) && self.memory.has_place_for_unknown(now) && self.limits.take_unknown(now)
    }

    fn check(
        &mut self,
        message: &Message,
        signer: &Signer,
        situation: &Situation<'_>,
        command: &Taken,
    ) -> Result<Decision, ReceiptCode> {
        let is_ours = matches!(message.content, Content::Prompt(_) | Content::Answer(_) | Content::Control(_));
        if !is_ours || matches!(message.content, Content::Control(Control::Newer(_))) {
            return Err(ReceiptCode::Unsupported);
        }
        self.memory.check(&message.content, command)?;
        let now = command.taken;
        let is_interrupt = matches!(message.content, Content::Control(Control::Interrupt));
        let access = match &message.content {
            Content::Control(Control::Access(grant)) => Some(grant),
            _ => None,
        };
        // A right with a version that no good clock reaches could never be taken back.
        if access.is_some_and(|grant| memory::is_early(time_of(grant), now)) {
            return Err(ReceiptCode::Stale);
        }
        let is_owner = signer.user == self.owner;
        // What only takes a right away waits for nothing.
        let takes_away = is_owner && access.is_some_and(|grant| grant.may == May::Nothing);
        if !takes_away && !self.limits.take(signer.user, is_interrupt, now) {
            return Err(ReceiptCode::Busy);
        }
        // A removed device may have signed it. A command that only stops does no harm, and is needed just then.
        let only_stops = is_owner && only_stops(&message.content, situation.open);
        if situation.list_is_withheld && !only_stops {
            return Err(ReceiptCode::Busy);
        }
        let right = self.right(signer);
        if !may(&right, &message.content) {
            return Err(ReceiptCode::NotAllowed);
        }
        // A right is ordered by its version. The key of a session changes as soon as a person loses a right, while a machine that sleeps
        // has not read of it.
        let is_old = situation.epoch < situation.newest_epoch && access.is_none();
        let is_refused = if situation.key_is_missing { !only_stops } else { is_old };
        if is_refused {
            return Err(ReceiptCode::OldKey);
        }
        // The person chose by a directory, or looked at one. Another session was put in its place.
        if wanted_directory(&message.content).is_some_and(|wanted| wanted != situation.directory) {
            return Err(ReceiptCode::WrongDirectory);
        }
        match &message.content {
            Content::Prompt(_) if situation.ended => Err(ReceiptCode::Superseded),
            Content::Prompt(_) if right == Right::Prompt && asks_nothing(situation.mode) => Ok(Decision::AskOwner),
            Content::Answer(answer) => fits(answer, situation.open, &right).map(|()| Decision::Take),
            Content::Control(Control::SetMode(set)) if matches!(set.mode, Mode::Other(_)) => {
                Err(ReceiptCode::Unsupported)
            }
            Content::Control(Control::SetMode(set)) if set.seen != *situation.mode => Err(ReceiptCode::Superseded),
            Content::Control(Control::Access(grant)) => {
                self.access.note(grant, self.owner)?;
                Ok(Decision::Take)
            }
            _ => Ok(Decision::Take),
        }
    }

    /// What this signer may command.
    pub fn right(&self, signer: &Signer) -> Right {
        match signer.role {
            Some(Role::Primary) if signer.user == self.owner => Right::Primary,
            Some(Role::Linked) if signer.user == self.owner => Right::Linked,
            Some(Role::Primary | Role::Linked) => self.access.of(signer.user, &signer.account),
            _ => Right::Nothing,
        }
    }

    /// Whether this signer may begin a session in this mode.
    pub fn may_begin(&self, signer: &Signer, mode: &Mode) -> bool {
        match (self.right(signer), mode) {
            (Right::Primary, Mode::Bypass) => true,
            (_, Mode::Bypass | Mode::Other(_)) => false,
            (right, _) => matches!(right, Right::Primary | Right::Linked),
        }
    }
}

/// The directory that was shown to the person who sent a command.
fn wanted_directory(command: &Content) -> Option<&str> {
    match command {
        Content::Prompt(prompt) => prompt.directory.as_deref(),
        Content::Control(Control::Resume(resume)) => resume.directory.as_deref(),
        _ => None,
    }
}

/// In these modes a prompt changes the machine without another question. A mode that is not known counts as one.
fn asks_nothing(mode: &Mode) -> bool {
    !matches!(mode, Mode::Ask | Mode::Plan)
}

/// Whether a command begins nothing and allows nothing.
fn only_stops(command: &Content, open: Option<&OpenRequest>) -> bool {
    match command {
        Content::Control(Control::Interrupt | Control::Stop) => true,
        Content::Control(Control::Access(grant)) => grant.may == May::Nothing,
        Content::Answer(Answer { option_id: None, answers: None, .. }) => true,
        Content::Answer(Answer { option_id: Some(chosen), answers: None, .. }) => {
            let options = open.and_then(|open| open.options.as_ref()).into_iter().flatten();
            let refuses =
                |option: &PermissionOption| matches!(option.kind, OptionKind::RejectOnce | OptionKind::RejectAlways);
            options.filter(|option| option.option_id == *chosen).any(refuses)
        }
        _ => false,
    }
}

/// Whether an answer is for this request, as it was shown, and of its kind. What reaches further than the request, as a rule that is
/// kept or another mode, is the owner's to choose.
fn fits(answer: &Answer, open: Option<&OpenRequest>, right: &Right) -> Result<(), ReceiptCode> {
    let open = open.filter(|open| open.digest == answer.digest).ok_or(ReceiptCode::Superseded)?;
    let is_fitting = match (&open.options, &answer.option_id, &answer.answers) {
        (Some(options), Some(chosen), None) => {
            let chosen = options.iter().find(|option| option.option_id == *chosen).ok_or(ReceiptCode::Unsupported)?;
            let is_for_once = matches!(chosen.kind, OptionKind::AllowOnce | OptionKind::RejectOnce);
            if !is_for_once && !matches!(right, Right::Primary | Right::Linked) {
                return Err(ReceiptCode::NotAllowed);
            }
            true
        }
        (None, None, Some(_)) => true,
        // A question can be refused with a message or without any.
        (None, None, None) => true,
        _ => false,
    };
    if is_fitting { Ok(()) } else { Err(ReceiptCode::Unsupported) }
}
