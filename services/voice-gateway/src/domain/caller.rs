//! The caller of a request: an application by its voice key, and with it possibly a person.

use std::net::IpAddr;

use ensemble_types::ids::UserId;

use super::start_token::StartToken;

/// SHA-256 of a voice key: identifies an application in rate limits without being its secret.
pub(crate) type KeyDigest = [u8; 32];

pub(crate) struct VoiceCaller {
    pub(crate) key: KeyDigest,
    /// The person, if the application sent the person's token.
    pub(crate) user: Option<UserId>,
    /// That token.
    pub(crate) token: Option<StartToken>,
    pub(crate) address: Option<IpAddr>,
}

impl VoiceCaller {
    /// Without a person's token the voice key may act for every user.
    pub(crate) fn may_act_for(&self, user_id: &str) -> bool {
        self.user.is_none_or(|user| user.to_string() == user_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_acts_for_all_users_and_a_person_for_one() {
        let user = UserId::generate();
        let caller = |user| VoiceCaller { key: [0; 32], user, token: None, address: None };
        assert!(caller(None).may_act_for("anybody"));
        assert!(caller(Some(user)).may_act_for(&user.to_string()));
        assert!(!caller(Some(user)).may_act_for(&UserId::generate().to_string()));
        assert!(!caller(Some(user)).may_act_for(""));
    }
}
