//! What a guest signs to claim an invitation.

use ensemble_types::ids::UserId;
use ensemble_types::invites::ClaimInvite;
use sha2::{Digest, Sha256};

use super::bytes::{encode, is_signed};
use super::link::{code, is_code};

const PURPOSE: &str = "ensemble-invite-claim-v1";

/// The text `T` of a claim: the server, the invitation, the guest's account, its newest device list, and the digest of the name.
#[derive(Clone, Debug)]
pub struct ClaimText(String);

impl ClaimText {
    /// `guest`: the id of the guest's account, and its key. `list`: the version and the digest of its newest list.
    pub fn new(origin: &str, invite: &str, guest: (UserId, &str), list: (u32, &str), name: &str) -> Self {
        let ((user, account), (version, digest)) = (guest, list);
        let name = encode(&Sha256::digest(name));
        Self(format!("ensemble-invite-v1\n{origin}\n{invite}\n{user}\n{account}\n{version}\n{digest}\n{name}"))
    }

    pub fn of(origin: &str, invite: &str, guest: (UserId, &str), claim: &ClaimInvite) -> Self {
        Self::new(origin, invite, guest, (claim.version, &claim.digest), &claim.name)
    }

    /// What the guest's device signs.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The `mac` of the claim, with the secret of the invitation.
    pub fn mac(&self, secret: &[u8; 32]) -> Option<String> {
        code(secret, PURPOSE, self.as_bytes()).map(|code| encode(&code))
    }

    /// Whether the `mac` was made with the secret of the invitation. Takes the same time for every wrong one.
    pub fn is_mac(&self, secret: &[u8; 32], mac: &str) -> bool {
        is_code(secret, PURPOSE, self.as_bytes(), mac)
    }
}

/// Whether the device with this key has signed the claim, at one of these origins.
pub fn is_claim<'o>(
    origins: impl IntoIterator<Item = &'o str>,
    invite: &str,
    guest: (UserId, &str),
    key: &str,
    claim: &ClaimInvite,
) -> bool {
    let is_good = |origin| is_signed(key, ClaimText::of(origin, invite, guest, claim).as_bytes(), &claim.signature);
    origins.into_iter().any(is_good)
}
