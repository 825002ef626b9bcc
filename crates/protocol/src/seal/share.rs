//! A session's ring for another person: sealed to them, and granted by a signature that the owner's clients can check too.
//!
//! The server says whom a session is shared with. A client that gives a session a new key checks these signatures instead, so that
//! only people whom the owner or an admin of the session has chosen get the new key.

use ed25519_dalek::{Signature, VerifyingKey};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::shares::ShareLevel;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::box_key::{BoxKeyPair, BoxPublicKey};
use super::encoding::{decode, decode_array, encode};
use super::ring::KeyRing;
use super::wrap::{Binding, SignedRing, digest, open_shared, seal_shared};
use super::{Result, SealError};
use crate::AccountKey;

const VERSION: u8 = 3;
const BY_OWNER: u8 = 0;
const BY_ADMIN: u8 = 1;

/// Who gets a session, as what.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    pub session: SessionId,
    pub recipient: UserId,
    /// The recipient's account key: the Ed25519 public key of their first device.
    pub account: &'a str,
    pub level: ShareLevel,
    /// Of the owner's newest device list that the signer knows.
    pub content_epoch: u32,
    /// Of the recipient's list to whose content key the ring is sealed.
    pub recipient_epoch: u32,
}

/// The signature of a grant, with what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signed {
    level: ShareLevel,
    epoch: u32,
    content_epoch: u32,
    recipient_epoch: u32,
    signer: [u8; 32],
    signature: [u8; 64],
}

/// The admin who shares a session, with the grant that they have themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    pub user: UserId,
    account: [u8; 32],
    digest: [u8; 32],
    signed: Signed,
}

/// A ring for a recipient, as it is stored in a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRing {
    signed: Signed,
    admin: Option<Admin>,
    sealed: Vec<u8>,
}

impl SharedRing {
    /// Seals a ring to a person; of a hosted session with the machine that hosts it. Signed by a device of the owner, or of the admin.
    pub fn seal(
        ring: &KeyRing,
        to: &BoxPublicKey,
        (grant, machine): (Grant<'_>, Option<&MachineId>),
        signer: &AccountKey,
        admin: Option<Admin>,
    ) -> Result<Self> {
        let binding = Binding::Share { session: grant.session, recipient: grant.recipient, machine };
        let sealed = seal_shared(ring, to, binding)?;
        let text = text(grant, form(admin.as_ref()), ring.epoch(), &digest(&sealed));
        let signed = Signed {
            level: grant.level,
            epoch: ring.epoch(),
            content_epoch: grant.content_epoch,
            recipient_epoch: grant.recipient_epoch,
            signer: decode_array(&signer.public_key())?,
            signature: decode_array(&signer.sign(&text))?,
        };
        Ok(Self { signed, admin, sealed })
    }

    /// `0x03 | grant (109) | 0x00 | sealed ring`, or with `0x01 | user id (16) | account key (32) | digest (32) | grant (109)` of
    /// an admin. A grant is `level (1) | epoch (4) | content epoch (4) | recipient's content epoch (4) | signer (32) | signature (64)`.
    pub fn to_text(&self) -> String {
        let mut bytes = vec![VERSION];
        self.signed.write(&mut bytes);
        match &self.admin {
            None => bytes.push(BY_OWNER),
            Some(admin) => {
                bytes.push(BY_ADMIN);
                admin.write(&mut bytes);
            }
        }
        bytes.extend_from_slice(&self.sealed);
        encode(&bytes)
    }

    pub fn from_text(text: &str) -> Result<Self> {
        let bytes = decode(text)?;
        let rest = bytes.strip_prefix(&[VERSION]).ok_or(SealError::Format)?;
        let (signed, rest) = Signed::read(rest)?;
        let (by, rest) = rest.split_first().ok_or(SealError::Format)?;
        let (admin, sealed) = match *by {
            BY_OWNER => (None, rest),
            BY_ADMIN => {
                let (admin, rest) = Admin::read(rest)?;
                (Some(admin), rest)
            }
            _ => return Err(SealError::Format),
        };
        Ok(Self { signed, admin, sealed: sealed.to_vec() })
    }

    /// The key of the device that granted it, if its signature is good for this session, recipient and account.
    pub fn signer(&self, session: SessionId, recipient: UserId, account: &str) -> Option<String> {
        self.signed.by((session, recipient, account), form(self.admin.as_ref()), &digest(&self.sealed))
    }

    pub fn level(&self) -> ShareLevel {
        self.signed.level
    }

    /// The epoch of the newest key in the ring.
    pub fn epoch(&self) -> u32 {
        self.signed.epoch
    }

    /// The content epoch of the owner's newest device list that the signer knew.
    pub fn content_epoch(&self) -> u32 {
        self.signed.content_epoch
    }

    /// The content epoch of the recipient's list to whose key it is sealed.
    pub fn recipient_epoch(&self) -> u32 {
        self.signed.recipient_epoch
    }

    /// The admin who granted it. `None`: a device of the owner did.
    pub fn admin(&self) -> Option<&Admin> {
        self.admin.as_ref()
    }

    /// What this person shows when they share the session themselves. They must be its admin.
    pub fn as_admin(&self, user: UserId, account: &str) -> Result<Admin> {
        let digest = Sha256::digest(&self.sealed).into();
        Ok(Admin { user, account: decode_array(account)?, digest, signed: self.signed })
    }

    /// Opens the ring; of a hosted session with the machine that hosts it. Its signer is who says that they granted it:
    /// [`Self::signer`] checks that.
    pub fn open(
        &self,
        pair: &BoxKeyPair,
        (session, recipient): (SessionId, UserId),
        machine: Option<&MachineId>,
    ) -> Result<SignedRing> {
        let ring = open_shared(&self.sealed, pair, Binding::Share { session, recipient, machine })?;
        if ring.epoch() != self.signed.epoch {
            return Err(SealError::RingSignature);
        }
        Ok(SignedRing { ring, signer: encode(&self.signed.signer) })
    }
}

impl Admin {
    /// The text of the proof that goes with what they have signed.
    pub fn to_text(&self) -> String {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        encode(&bytes)
    }

    /// Reads the output of [`Self::to_text`].
    pub fn from_text(text: &str) -> Result<Self> {
        let bytes = decode(text)?;
        let (admin, rest) = Self::read(&bytes)?;
        if rest.is_empty() { Ok(admin) } else { Err(SealError::Format) }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.user.uuid().as_bytes());
        bytes.extend_from_slice(&self.account);
        bytes.extend_from_slice(&self.digest);
        self.signed.write(bytes);
    }

    fn read(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let (user, rest) = bytes.split_first_chunk::<16>().ok_or(SealError::Format)?;
        let (account, rest) = rest.split_first_chunk::<32>().ok_or(SealError::Format)?;
        let (digest, rest) = rest.split_first_chunk::<32>().ok_or(SealError::Format)?;
        let (signed, rest) = Signed::read(rest)?;
        let user = UserId::from_uuid(Uuid::from_bytes(*user));
        Ok((Self { user, account: *account, digest: *digest, signed }, rest))
    }

    pub fn account(&self) -> String {
        encode(&self.account)
    }

    /// The key of the device that made them an admin of this session, if its signature is good.
    pub fn granted_by(&self, session: SessionId) -> Option<String> {
        let account = self.account();
        let signer = self.signed.by((session, self.user, &account), "owner", &encode(&self.digest));
        signer.filter(|_| self.signed.level == ShareLevel::Admin)
    }

    /// The epoch in which they were made one.
    pub fn epoch(&self) -> u32 {
        self.signed.epoch
    }
}

impl Signed {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(level_byte(self.level));
        bytes.extend_from_slice(&self.epoch.to_be_bytes());
        bytes.extend_from_slice(&self.content_epoch.to_be_bytes());
        bytes.extend_from_slice(&self.recipient_epoch.to_be_bytes());
        bytes.extend_from_slice(&self.signer);
        bytes.extend_from_slice(&self.signature);
    }

    fn read(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let (level, rest) = bytes.split_first().ok_or(SealError::Format)?;
        let (epoch, rest) = rest.split_first_chunk::<4>().ok_or(SealError::Format)?;
        let (content, rest) = rest.split_first_chunk::<4>().ok_or(SealError::Format)?;
        let (recipient, rest) = rest.split_first_chunk::<4>().ok_or(SealError::Format)?;
        let (signer, rest) = rest.split_first_chunk::<32>().ok_or(SealError::Format)?;
        let (signature, rest) = rest.split_first_chunk::<64>().ok_or(SealError::Format)?;
        let level = LEVELS.into_iter().find(|known| level_byte(*known) == *level).ok_or(SealError::Format)?;
        let [epoch, content_epoch, recipient_epoch] = [epoch, content, recipient].map(|four| u32::from_be_bytes(*four));
        Ok((Self { level, epoch, content_epoch, recipient_epoch, signer: *signer, signature: *signature }, rest))
    }

    fn by(&self, (session, recipient, account): (SessionId, UserId, &str), form: &str, digest: &str) -> Option<String> {
        let Self { level, content_epoch, recipient_epoch, .. } = *self;
        let grant = Grant { session, recipient, account, level, content_epoch, recipient_epoch };
        let key = VerifyingKey::from_bytes(&self.signer).ok().filter(|key| !key.is_weak())?;
        let text = text(grant, form, self.epoch, digest);
        let is_good = key.verify_strict(&text, &Signature::from_bytes(&self.signature)).is_ok();
        is_good.then(|| encode(&self.signer))
    }
}

const LEVELS: [ShareLevel; 3] = [ShareLevel::View, ShareLevel::Edit, ShareLevel::Admin];

/// As whom the signer grants it.
fn form(admin: Option<&Admin>) -> &'static str {
    if admin.is_some() { "admin" } else { "owner" }
}

fn level_byte(level: ShareLevel) -> u8 {
    match level {
        ShareLevel::View => 0,
        ShareLevel::Edit => 1,
        ShareLevel::Admin => 2,
    }
}

/// `ensemble-share-v2`, session, recipient, account key, level, `owner` or `admin` as who grants it, epoch, the owner's and the recipient's
/// content epoch, and the SHA-256 of the sealed ring in base64url, each in a line; the last one has no end.
fn text(grant: Grant<'_>, form: &str, epoch: u32, digest: &str) -> Vec<u8> {
    let Grant { session, recipient, account, level, content_epoch, recipient_epoch } = grant;
    let level = level.as_str();
    let about = format!("{session}\n{recipient}\n{account}\n{level}\n{form}");
    format!("ensemble-share-v2\n{about}\n{epoch}\n{content_epoch}\n{recipient_epoch}\n{digest}").into_bytes()
}
