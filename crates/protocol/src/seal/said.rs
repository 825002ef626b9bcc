//! What is known of a session apart from its messages, signed like a message: its metadata, by which people find it, and the glance of
//! its machine.
//!
//! Every reader of a session has its key, so only a signature proves the writer. It covers the version that the text gets, so that an
//! older text that is shown again is recognized, and the epoch of the key, so that a removed device signs nothing for the key that was
//! made since.

use crate::lists::is_signed;
use ensemble_types::ids::{SessionId, UserId};
use serde::{Deserialize, Serialize};

use super::content::{Purpose, epoch_of, open_json, seal_json};
use super::ring::KeyRing;
use super::share::Admin;
use super::{Result, SealError};
use crate::AccountKey;

const METADATA: &str = "ensemble-session-metadata-v3";
const AGENT_STATE: &str = "ensemble-agent-state-v1";
/// The form of both.
const FORM: u32 = 1;
/// The longest body of metadata that counts, in bytes. A device that gives the session a new key signs the metadata again,
/// and some numbers are longer then: it still has to fit.
pub const LONGEST_METADATA: usize = 16 << 10;
/// The longest key or signature of a part, in bytes.
const LONGEST_SIGNATURE: usize = 128;

/// The metadata of a session before it is signed.
#[derive(Clone, Debug)]
pub struct Metadata<'a> {
    /// A JSON object. The signature is over its bytes.
    pub body: String,
    /// The account that the signer is a device of.
    pub user: UserId,
    /// The proof of a signer that is not a device of the owner: they are an admin of the session.
    pub admin: Option<&'a Admin>,
    /// What the session's machine has signed of an earlier version.
    pub of_machine: Option<OfMachine>,
}

/// What the machine of a session has signed of some version of its metadata. Others replace the metadata, to give the session a title; they
/// carry this over, because it decides the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfMachine {
    version: i64,
    epoch: u32,
    body: String,
    key: String,
    sig: String,
}

#[derive(Serialize, Deserialize)]
struct SealedMetadata {
    v: u32,
    body: String,
    user: UserId,
    key: String,
    sig: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<OfMachine>,
}

/// Metadata that its signer has signed for this session, version and key. Whether the signer may is for the caller to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedMetadata {
    pub body: String,
    pub user: UserId,
    /// The signer's public key.
    pub key: String,
    /// By which admin, as they show it.
    pub admin: Option<Admin>,
    /// The epoch of the session's key, which is the one of the grant that makes an admin.
    pub epoch: u32,
    own: OfMachine,
    of_machine: Option<OfMachine>,
    session: SessionId,
}

impl SignedMetadata {
    /// What the holder of this key has signed last: this version, or one before.
    pub fn body_of(&self, machine: &str) -> Option<&str> {
        if self.key == machine {
            return Some(&self.body);
        }
        self.of_machine.as_ref().filter(|one| one.is_by(machine, self.session)).map(|one| one.body.as_str())
    }

    /// The same with its signature, for the next version.
    pub fn of_machine(&self, machine: &str) -> Option<OfMachine> {
        if self.key == machine {
            return Some(self.own.clone());
        }
        self.of_machine.clone().filter(|one| one.is_by(machine, self.session))
    }

    /// What may be the machine's where its key is not known: who reads it checks it. `with_own`: who has signed this version may be the
    /// machine.
    pub fn unchecked(&self, with_own: bool) -> Option<OfMachine> {
        self.of_machine.clone().or_else(|| with_own.then(|| self.own.clone()))
    }
}

impl OfMachine {
    fn is_by(&self, machine: &str, session: SessionId) -> bool {
        let text = signed_text(METADATA, (session, self.version), self.epoch, &self.body);
        self.key == machine && is_signed(&self.key, &text, &self.sig)
    }

    /// Whether it has the size of one. It is passed on unread.
    fn is_short(&self) -> bool {
        self.body.len() <= LONGEST_METADATA && self.key.len().max(self.sig.len()) <= LONGEST_SIGNATURE
    }
}

/// Signs the metadata of a session for the version that it gets, and seals it with the ring's newest key.
///
/// # Errors
/// [`SealError::TooLong`]: its body is longer than [`LONGEST_METADATA`], so it would not count.
pub fn seal_metadata(
    ring: &KeyRing,
    (session, version): (SessionId, i64),
    metadata: Metadata<'_>,
    signer: &AccountKey,
) -> Result<String> {
    let Metadata { body, user, admin, of_machine } = metadata;
    if body.len() > LONGEST_METADATA {
        return Err(SealError::TooLong);
    }
    let sig = signer.sign(&signed_text(METADATA, (session, version), ring.epoch(), &body));
    let sealed = SealedMetadata {
        v: FORM,
        body,
        user,
        key: signer.public_key(),
        sig,
        admin: admin.map(Admin::to_text),
        machine: of_machine,
    };
    seal_json(ring, Purpose::SessionMetadata(session), &sealed)
}

/// Opens the output of [`seal_metadata`] for the same session and version.
///
/// # Errors
/// It is also refused under an earlier key than the newest one of the ring: who was removed has that one.
/// [`SealError::TooLong`]: its body is longer than [`LONGEST_METADATA`].
pub fn open_metadata(ring: &KeyRing, of: (SessionId, i64), sealed: &str) -> Result<SignedMetadata> {
    open_earlier_metadata((ring, ring.epoch()), of, sealed)
}

/// The same under the key of this epoch, for who has newer keys than a server that was restored. Those who were removed since have that
/// key.
pub fn open_earlier_metadata(
    (ring, of_epoch): (&KeyRing, u32),
    (session, version): (SessionId, i64),
    sealed: &str,
) -> Result<SignedMetadata> {
    let opened: SealedMetadata = open_json(ring, Purpose::SessionMetadata(session), sealed)?;
    let epoch = epoch_of(sealed)?;
    let SealedMetadata { v, body, user, key, sig, admin, machine } = opened;
    let text = signed_text(METADATA, (session, version), epoch, &body);
    if v != FORM || epoch != of_epoch || !is_signed(&key, &text, &sig) {
        return Err(SealError::Unsigned);
    }
    if body.len() > LONGEST_METADATA {
        return Err(SealError::TooLong);
    }
    let admin = admin.as_deref().map(Admin::from_text).transpose()?;
    let own = OfMachine { version, epoch, body: body.clone(), key: key.clone(), sig };
    let of_machine = machine.filter(OfMachine::is_short);
    Ok(SignedMetadata { body, user, key, admin, epoch, own, of_machine, session })
}

/// What the machine of a session says of it without a message.
#[derive(Serialize, Deserialize)]
struct SealedState {
    v: u32,
    body: String,
    key: String,
    sig: String,
}

/// Signs a JSON object for the version that it gets as the session's `agentState`, and seals it with the ring's newest key.
pub fn seal_agent_state(
    ring: &KeyRing,
    (session, version): (SessionId, i64),
    body: String,
    machine: &AccountKey,
) -> Result<String> {
    let sig = machine.sign(&signed_text(AGENT_STATE, (session, version), ring.epoch(), &body));
    let sealed = SealedState { v: FORM, body, key: machine.public_key(), sig };
    seal_json(ring, Purpose::AgentState(session), &sealed)
}

/// Opens the output of [`seal_agent_state`] for the same session and version, if the holder of this key has signed it.
pub fn open_agent_state(
    ring: &KeyRing,
    (session, version): (SessionId, i64),
    sealed: &str,
    machine: &str,
) -> Result<String> {
    let SealedState { v, body, key, sig } = open_json(ring, Purpose::AgentState(session), sealed)?;
    let text = signed_text(AGENT_STATE, (session, version), epoch_of(sealed)?, &body);
    if v != FORM || key != machine || !is_signed(&key, &text, &sig) {
        return Err(SealError::Unsigned);
    }
    Ok(body)
}

/// The first line, the session's id, the version and the epoch of the key, each in a line, and the body.
fn signed_text(first: &str, (session, version): (SessionId, i64), epoch: u32, body: &str) -> Vec<u8> {
    format!("{first}\n{session}\n{version}\n{epoch}\n{body}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::encoding::{decode, encode};
    use super::*;

    fn sealed(ring: &KeyRing, of: (SessionId, i64), body: &str, signer: &AccountKey) -> String {
        signed(ring, of, body, signer, None)
    }

    fn signed(
        ring: &KeyRing,
        of: (SessionId, i64),
        body: &str,
        signer: &AccountKey,
        of_machine: Option<OfMachine>,
    ) -> String {
        let metadata = Metadata { body: body.to_owned(), user: UserId::generate(), admin: None, of_machine };
        seal_metadata(ring, of, metadata, signer).unwrap()
    }

    #[test]
    fn metadata_counts_for_one_session_version_and_key() {
        let (ring, key, session) = (KeyRing::generate(), AccountKey::generate(), SessionId::generate());
        let blob = sealed(&ring, (session, 3), r#"{"title":"T"}"#, &key);
        let opened = open_metadata(&ring, (session, 3), &blob).unwrap();
        assert_eq!((opened.body.as_str(), opened.key.as_str()), (r#"{"title":"T"}"#, key.public_key().as_str()));
        assert_eq!(open_metadata(&ring, (session, 2), &blob), Err(SealError::Unsigned));
        assert_eq!(open_metadata(&ring, (session, 4), &blob), Err(SealError::Unsigned), "shown again as a newer one");
        assert_eq!(open_metadata(&ring, (SessionId::generate(), 3), &blob), Err(SealError::Refused));
        let next = ring.next().unwrap();
        assert_eq!(open_metadata(&next, (session, 3), &blob), Err(SealError::Unsigned), "of the key before");
        // As it was sealed before it was signed.
        let bare = seal_json(&ring, Purpose::SessionMetadata(session), &serde_json::json!({"title": "T"})).unwrap();
        assert_eq!(open_metadata(&ring, (session, 3), &bare), Err(SealError::Format));
        // A reader has the key, and cannot sign for another user.
        let mut form: serde_json::Value = open_json(&ring, Purpose::SessionMetadata(session), &blob).unwrap();
        for (member, other) in [
            ("body", serde_json::json!("{}")),
            ("key", AccountKey::generate().public_key().into()),
            ("sig", encode(&[0; 64]).into()),
            ("v", 2.into()),
        ] {
            let good = std::mem::replace(&mut form[member], other);
            let changed = seal_json(&ring, Purpose::SessionMetadata(session), &form).unwrap();
            assert_eq!(open_metadata(&ring, (session, 3), &changed), Err(SealError::Unsigned), "{member}");
            form[member] = good;
        }
    }

    #[test]
    fn the_metadata_of_others_carries_what_the_machine_has_signed() {
        let (ring, machine, owner) = (KeyRing::generate(), AccountKey::generate(), AccountKey::generate());
        let (session, name) = (SessionId::generate(), machine.public_key());
        let first = open_metadata(&ring, (session, 1), &sealed(&ring, (session, 1), r#"{"path":"/a"}"#, &machine));
        let part = first.unwrap().of_machine(&name).unwrap();
        let next = ring.next().unwrap();
        let titled = signed(&next, (session, 2), r#"{"title":"T"}"#, &owner, Some(part.clone()));
        let titled = open_metadata(&next, (session, 2), &titled).unwrap();
        assert_eq!((titled.body.as_str(), titled.body_of(&name)), (r#"{"title":"T"}"#, Some(r#"{"path":"/a"}"#)));
        assert_eq!(titled.of_machine(&name), Some(part.clone()));
        assert_eq!(titled.body_of(&AccountKey::generate().public_key()), None);
        // Who replaces the metadata changes nothing of it, and takes none of another session.
        let other = OfMachine { body: r#"{"path":"/b"}"#.to_owned(), ..part.clone() };
        let elsewhere = SessionId::generate();
        for (of, part) in [((session, 3), other), ((elsewhere, 3), part)] {
            let forged = open_metadata(&next, of, &signed(&next, of, "{}", &owner, Some(part))).unwrap();
            assert_eq!((forged.body_of(&name), forged.of_machine(&name)), (None, None));
        }
    }

    #[test]
    fn metadata_that_is_too_long_does_not_count_and_is_not_made() {
        let (ring, key, session) = (KeyRing::generate(), AccountKey::generate(), SessionId::generate());
        let body = |length: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(length - 12));
        let longest = sealed(&ring, (session, 1), &body(LONGEST_METADATA), &key);
        assert_eq!(open_metadata(&ring, (session, 1), &longest).unwrap().body.len(), LONGEST_METADATA);
        let (body, user) = (body(LONGEST_METADATA + 1), UserId::generate());
        let metadata = Metadata { body: body.clone(), user, admin: None, of_machine: None };
        assert_eq!(seal_metadata(&ring, (session, 1), metadata, &key), Err(SealError::TooLong));
        // As another program makes it.
        let sig = key.sign(&signed_text(METADATA, (session, 1), 1, &body));
        let theirs = SealedMetadata { v: FORM, body, user, key: key.public_key(), sig, admin: None, machine: None };
        let theirs = seal_json(&ring, Purpose::SessionMetadata(session), &theirs).unwrap();
        assert_eq!(open_metadata(&ring, (session, 1), &theirs), Err(SealError::TooLong));
    }

    #[test]
    fn what_may_be_the_machines_is_passed_on_unread_unless_it_is_too_long() {
        let (ring, machine, owner) = (KeyRing::generate(), AccountKey::generate(), AccountKey::generate());
        let session = SessionId::generate();
        let first =
            open_metadata(&ring, (session, 1), &sealed(&ring, (session, 1), r#"{"path":"/a"}"#, &machine)).unwrap();
        assert_eq!((first.unchecked(false), first.unchecked(true)), (None, first.of_machine(&machine.public_key())));
        let part = first.unchecked(true).unwrap();
        let next = |part| {
            let blob = signed(&ring, (session, 2), "{}", &owner, Some(part));
            open_metadata(&ring, (session, 2), &blob).unwrap().unchecked(false)
        };
        assert_eq!(next(part.clone()), Some(part.clone()));
        let too_long = "x".repeat(LONGEST_METADATA + 1);
        assert_eq!(next(OfMachine { body: too_long.clone(), ..part.clone() }), None);
        assert_eq!(next(OfMachine { sig: too_long, ..part }), None);
    }

    #[test]
    fn metadata_of_an_earlier_key_is_opened_by_who_asks_for_that_key() {
        let (first, key, session) = (KeyRing::generate(), AccountKey::generate(), SessionId::generate());
        let blob = sealed(&first, (session, 2), "{}", &key);
        let ring = first.next().unwrap().next().unwrap();
        let opened = |epoch| open_earlier_metadata((&ring, epoch), (session, 2), &blob);
        assert_eq!(opened(1).unwrap().epoch, 1);
        assert_eq!((opened(2), opened(3)), (Err(SealError::Unsigned), Err(SealError::Unsigned)));
    }

    #[test]
    fn the_glance_of_a_machine_counts_under_its_signature_only() {
        let (ring, machine, session) = (KeyRing::generate(), AccountKey::generate(), SessionId::generate());
        let name = machine.public_key();
        let blob = seal_agent_state(&ring, (session, 7), "{}".to_owned(), &machine).unwrap();
        assert_eq!(open_agent_state(&ring, (session, 7), &blob, &name), Ok("{}".to_owned()));
        assert_eq!(open_agent_state(&ring, (session, 8), &blob, &name), Err(SealError::Unsigned));
        let other = AccountKey::generate();
        assert_eq!(open_agent_state(&ring, (session, 7), &blob, &other.public_key()), Err(SealError::Unsigned));
        let theirs = seal_agent_state(&ring, (session, 7), "{}".to_owned(), &other).unwrap();
        assert_eq!(open_agent_state(&ring, (session, 7), &theirs, &name), Err(SealError::Unsigned));
        // A signature over metadata is none over this.
        let metadata = decode(&sealed(&ring, (session, 7), "{}", &machine)).unwrap();
        assert!(open_agent_state(&ring, (session, 7), &encode(&metadata), &name).is_err());
    }
}
