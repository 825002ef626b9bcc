//! Looks: a device reads something on a machine, and only that device can open the answer.
//!
//! The server passes both on and reads nothing of them. Nothing stores a look, and it changes nothing. Question and answer are signed,
//! and the answer is bound to the question, so a server that repeats, swaps or delays them gains nothing.

mod answers;
mod question;
#[cfg(test)]
mod tests;

use ensemble_types::devices::Role;
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::signatures::digest;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use answers::{
    Answered, Commit, Conversations, Directories, Directory, EarlierConversation, EarlierTurn, Entry, EntryKind,
    FileKind, FilePart, GitLog, GitState, InUse, Names, Part, Refusal, Remote, TurnBy, Turns,
};
pub use question::{Depth, GitWhat, Look, Question, Since, Whole};

use super::box_key::{BoxKeyPair, BoxPublicKey};
use super::wrap::{open_for, seal_for};
use super::{Result, SealError};
use crate::AccountKey;
use crate::transcript::bounds::fitting;
use crate::transcript::rules::Right;
use crate::transcript::words::ReceiptCode;

const QUESTION: &str = "ensemble-look-v1";
const ANSWER: &str = "ensemble-look-answer-v1";

/// The longest question, sealed.
pub const MOST_QUESTION: usize = 16 << 10;
/// The longest answer, sealed.
pub const MOST_ANSWER: usize = 1 << 20;
/// The longest part of a text or a file.
pub const MOST_PART: usize = 256 << 10;

/// A question as its asker signed it. Whether the asker may ask it is for [`Self::judge`] to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedQuestion {
    /// A [`Question`] as JSON.
    pub body: String,
    pub user: UserId,
    /// The public key of the asker's device. The answer is sealed to the box key that is listed with it.
    pub key: String,
    sig: String,
}

#[derive(Serialize, Deserialize)]
struct SignedAnswer {
    body: String,
    sig: String,
}

/// What the machine does with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Answer,
    /// It says why not, in an answer to the asker's device.
    Refuse(ReceiptCode),
    /// The asker's key is in no list of `user` that the machine has, or the server withholds a list in which it may be missing.
    Silence,
}

/// Signs a question for this machine and seals it to the box key that the owner's newest list has for it.
///
/// # Errors
/// [`SealError::TooLong`]: no server takes it.
pub fn seal_question(
    body: &str,
    to: &BoxPublicKey,
    (owner, machine): (UserId, &MachineId),
    (user, signer): (UserId, &AccountKey),
) -> Result<String> {
    let sig = signer.sign(&question_text(machine, user, body));
    let question = SignedQuestion { body: body.to_owned(), user, key: signer.public_key(), sig };
    let text = serde_json::to_vec(&question).map_err(|_| SealError::Format)?;
    bounded(seal_for(QUESTION.as_bytes(), &text, to, &question_aad(owner, machine))?, MOST_QUESTION)
}

/// Opens the output of [`seal_question`] for the same owner and machine, and checks its signature.
pub fn open_question(
    sealed: &str,
    with: &BoxKeyPair,
    (owner, machine): (UserId, &MachineId),
) -> Result<SignedQuestion> {
    if sealed.len() > MOST_QUESTION {
        return Err(SealError::TooLong);
    }
    let text = open_for(QUESTION.as_bytes(), sealed, with, &question_aad(owner, machine))?;
    let question: SignedQuestion = serde_json::from_slice(&text).map_err(|_| SealError::Format)?;
    let text = question_text(machine, question.user, &question.body);
    match crate::lists::is_signed(&question.key, &text, &question.sig) {
        true => Ok(question),
        false => Err(SealError::LookSignature),
    }
}

impl SignedQuestion {
    /// By what an answer names its question.
    pub fn digest(&self) -> String {
        digest(&self.body)
    }

    /// `role`: of the key in the newest list of `user`, if the machine has that list and the key is in it. `right`: what that user may in
    /// the session of the question, or with the machine where it names none.
    pub fn judge(
        &self,
        question: &Question,
        (role, right): (Option<Role>, Right),
        list_is_withheld: bool,
        now: Timestamp,
    ) -> Verdict {
        if list_is_withheld || !role.is_some_and(Role::shares_sessions) {
            return Verdict::Silence;
        }
        if !question.is_fresh(now) {
            return Verdict::Refuse(ReceiptCode::Stale);
        }
        if question.look == Look::Unknown || question.look.is_of_session() != question.session.is_some() {
            return Verdict::Refuse(ReceiptCode::Unsupported);
        }
        match right >= question.look.needs() {
            true => Verdict::Answer,
            false => Verdict::Refuse(ReceiptCode::NotAllowed),
        }
    }
}

/// Signs the answer to the question with this digest and seals it to the asker's box key, from the newest list of the question's `user`.
///
/// # Errors
/// [`SealError::TooLong`]: no server takes it.
pub fn seal_answer(
    body: &str,
    to: &BoxPublicKey,
    (machine, question): (&MachineId, &str),
    signer: &AccountKey,
) -> Result<String> {
    let sig = signer.sign(&answer_text(machine, question, body));
    let text = serde_json::to_vec(&SignedAnswer { body: body.to_owned(), sig }).map_err(|_| SealError::Format)?;
    bounded(seal_for(ANSWER.as_bytes(), &text, to, &answer_aad(machine, question))?, MOST_ANSWER)
}

/// Opens the output of [`seal_answer`] for the same question, if the holder of `key` has signed it: the key of the machine in the newest
/// list of its owner. Returns the body, which is an [`Answered`] of what the question asked.
pub fn open_answer(
    sealed: &str,
    with: &BoxKeyPair,
    (machine, key): (&MachineId, &str),
    question: &str,
) -> Result<String> {
    if sealed.len() > MOST_ANSWER {
        return Err(SealError::TooLong);
    }
    let text = open_for(ANSWER.as_bytes(), sealed, with, &answer_aad(machine, question))?;
    let SignedAnswer { body, sig } = serde_json::from_slice(&text).map_err(|_| SealError::Format)?;
    match crate::lists::is_signed(key, &answer_text(machine, question, &body), &sig) {
        true => Ok(body),
        false => Err(SealError::LookSignature),
    }
}

/// The part of a text from a byte on that fits into an answer, cut between characters. `None`: no character begins there.
pub fn part(text: &str, from: usize) -> Option<&str> {
    let rest = text.get(from..)?;
    rest.get(..fitting(rest, MOST_PART))
}

fn bounded(sealed: String, most: usize) -> Result<String> {
    if sealed.len() > most { Err(SealError::TooLong) } else { Ok(sealed) }
}

fn question_aad(owner: UserId, machine: &MachineId) -> String {
    format!("{QUESTION}\n{owner}\n{machine}")
}

fn question_text(machine: &MachineId, user: UserId, body: &str) -> Vec<u8> {
    format!("{QUESTION}\n{machine}\n{user}\n{body}").into_bytes()
}

fn answer_aad(machine: &MachineId, question: &str) -> String {
    format!("{ANSWER}\n{machine}\n{question}")
}

fn answer_text(machine: &MachineId, question: &str, body: &str) -> Vec<u8> {
    format!("{ANSWER}\n{machine}\n{question}\n{body}").into_bytes()
}
