//! Accounts, and the rule that only the holder of the account key can change the content key.

use ed25519_dalek::{Signature, VerifyingKey};
use ensemble_types::accounts::{self, PublicUser, UpdateAccount};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::encode;
use super::encoding::decode;

/// An account. It belongs to the holder of the private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) id: UserId,
    /// Ed25519.
    pub(crate) public_key: [u8; 32],
    pub(crate) content_key: Option<ContentKey>,
    pub(crate) display_name: Option<String>,
    /// What the clients of one person share, sealed by them.
    pub(crate) client_state: Option<String>,
    pub(crate) client_state_version: i64,
    pub(crate) created_at: Timestamp,
}

/// The key that others seal keys to, with the account's signature of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentKey {
    /// X25519.
    pub(crate) public: [u8; 32],
    /// Ed25519, by the account key.
    pub(crate) signature: [u8; 64],
}

/// Whether a sign-in with an unknown key makes an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// It does.
    Open,
    /// It needs an invitation.
    Invited,
    /// This server makes no new accounts.
    Closed,
    /// The address has made too many accounts lately. It may make the next one after this many seconds.
    Limited(u32),
}

/// An update that changes something. The content key's signature is not checked yet.
#[derive(Clone, Debug)]
pub(crate) struct AccountChange {
    pub(crate) display_name: Option<String>,
    pub(crate) content_key: Option<ContentKey>,
    /// The new state, and the version that it replaces.
    pub(crate) client_state: Option<(String, i64)>,
}

/// An update that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAccountChange {
    #[error("nothing is changed")]
    Empty,
    #[error("{field} {rule}")]
    Field { field: &'static str, rule: &'static str },
    #[error("the client state has version {version}")]
    OldState { version: i64, value: Option<String> },
}

impl AccountChange {
    pub(crate) fn new(body: UpdateAccount) -> Result<Self, BadAccountChange> {
        const KEY: &str = "contentPublicKey";
        const SIGNATURE: &str = "contentPublicKeySignature";
        let bad = |field, rule| BadAccountChange::Field { field, rule };
        let content_key = match (body.content_public_key, body.content_public_key_signature) {
            (None, None) => None,
            (Some(key), Some(signature)) => Some(ContentKey {
                public: decode(&key).ok_or(bad(KEY, "must be 32 bytes in base64"))?,
                signature: decode(&signature).ok_or(bad(SIGNATURE, "must be 64 bytes in base64"))?,
            }),
            (Some(_), None) => return Err(bad(SIGNATURE, "is needed with contentPublicKey")),
            (None, Some(_)) => return Err(bad(KEY, "is needed with contentPublicKeySignature")),
        };
        let display_name = body.display_name.map(|name| name.into_string());
        let client_state = match (body.client_state, body.expected_version) {
            (None, None) => None,
            (Some(state), Some(version)) => Some((state.into_string(), version)),
            (Some(_), None) => return Err(bad("expectedVersion", "is needed with clientState")),
            (None, Some(_)) => return Err(bad("expectedVersion", "is only for a change of clientState")),
        };
        if display_name.is_none() && content_key.is_none() && client_state.is_none() {
            return Err(BadAccountChange::Empty);
        }
        Ok(Self { display_name, content_key, client_state })
    }
}

impl Account {
    /// The account after the change, if the account key signed the new content key.
    pub(crate) fn change(self, change: AccountChange) -> Result<Self, BadAccountChange> {
        if let Some(key) = &change.content_key {
            key.check(&self.public_key)?;
        }
        let (client_state, client_state_version) = match change.client_state {
            None => (self.client_state, self.client_state_version),
            Some((state, replaced)) if replaced == self.client_state_version => (Some(state), replaced + 1),
            Some(_) => {
                let (version, value) = (self.client_state_version, self.client_state);
                return Err(BadAccountChange::OldState { version, value });
            }
        };
        Ok(Self {
            client_state,
            client_state_version,
            display_name: change.display_name.or(self.display_name),
            content_key: change.content_key.or(self.content_key),
            ..self
        })
    }
}

impl ContentKey {
    fn check(&self, account: &[u8; 32]) -> Result<(), BadAccountChange> {
        let signed = format!("ensemble-content-key-v1\n{}", encode(&self.public));
        let good = VerifyingKey::from_bytes(account)
            .and_then(|key| key.verify_strict(signed.as_bytes(), &Signature::from_bytes(&self.signature)));
        good.map_err(|_| BadAccountChange::Field {
            field: "contentPublicKeySignature",
            rule: "must be the account key's signature over `ensemble-content-key-v1`, a line feed and the key in base64url",
        })
    }
}

impl From<Account> for accounts::Account {
    fn from(account: Account) -> Self {
        Self {
            id: account.id,
            public_key: encode(&account.public_key),
            content_public_key: account.content_key.map(|key| encode(&key.public)),
            content_public_key_signature: account.content_key.map(|key| encode(&key.signature)),
            display_name: account.display_name,
            client_state: account.client_state,
            client_state_version: account.client_state_version,
            created_at: account.created_at,
        }
    }
}

impl From<Account> for PublicUser {
    fn from(account: Account) -> Self {
        let own = accounts::Account::from(account);
        Self {
            id: own.id,
            public_key: own.public_key,
            content_public_key: own.content_public_key,
            content_public_key_signature: own.content_public_key_signature,
            display_name: own.display_name,
        }
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};
    use ensemble_types::text::{Blob, Text};

    use super::*;

    const CONTENT_KEY: [u8; 32] = [9; 32];

    fn account(key: &SigningKey) -> Account {
        Account {
            id: UserId::generate(),
            public_key: key.verifying_key().to_bytes(),
            content_key: None,
            display_name: Some("before".to_owned()),
            client_state: None,
            client_state_version: 0,
            created_at: Timestamp::from_unix_seconds(0),
        }
    }

    fn signed_by(key: &SigningKey) -> UpdateAccount {
        let text = format!("ensemble-content-key-v1\n{}", encode(&CONTENT_KEY));
        UpdateAccount {
            content_public_key: Some(Blob::new(encode(&CONTENT_KEY)).unwrap()),
            content_public_key_signature: Some(Blob::new(encode(&key.sign(text.as_bytes()).to_bytes())).unwrap()),
            ..UpdateAccount::default()
        }
    }

    #[test]
    fn only_the_account_key_sets_the_content_key() {
        let (key, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let change = |update| account(&key).change(AccountChange::new(update).unwrap());
        let changed = change(signed_by(&key)).unwrap();
        assert_eq!(changed.content_key.map(|key| key.public), Some(CONTENT_KEY));
        assert_eq!(changed.display_name.as_deref(), Some("before"));
        let refused = change(signed_by(&other)).unwrap_err();
        assert!(matches!(refused, BadAccountChange::Field { field: "contentPublicKeySignature", .. }));
    }

    #[test]
    fn a_new_name_keeps_the_content_key() {
        let key = SigningKey::from_bytes(&[1; 32]);
        let with_key = account(&key).change(AccountChange::new(signed_by(&key)).unwrap()).unwrap();
        let name = UpdateAccount { display_name: Some(Text::new("after").unwrap()), ..UpdateAccount::default() };
        let renamed = with_key.change(AccountChange::new(name).unwrap()).unwrap();
        assert_eq!(renamed.display_name.as_deref(), Some("after"));
        assert_eq!(renamed.content_key.map(|key| key.public), Some(CONTENT_KEY));
    }

    #[test]
    fn the_state_of_clients_is_replaced_only_when_the_version_is_known() {
        let stored = || Account {
            client_state: Some("old".to_owned()),
            client_state_version: 3,
            ..account(&SigningKey::from_bytes(&[1; 32]))
        };
        let replace = |version| {
            let update = UpdateAccount {
                client_state: Some(Blob::new("new").unwrap()),
                expected_version: Some(version),
                ..UpdateAccount::default()
            };
            let changed = stored().change(AccountChange::new(update).unwrap())?;
            Ok((changed.client_state.unwrap(), changed.client_state_version))
        };
        assert_eq!(replace(3), Ok(("new".to_owned(), 4)));
        for version in [2, 4] {
            let old = BadAccountChange::OldState { version: 3, value: Some("old".to_owned()) };
            assert_eq!(replace(version), Err(old), "{version}");
        }
        let name = UpdateAccount { display_name: Some(Text::new("after").unwrap()), ..UpdateAccount::default() };
        let renamed = stored().change(AccountChange::new(name).unwrap()).unwrap();
        assert_eq!((renamed.client_state.as_deref(), renamed.client_state_version), (Some("old"), 3));
    }

    #[test]
    fn a_content_key_comes_with_its_signature() {
        let key = SigningKey::from_bytes(&[1; 32]);
        let field = |update| match AccountChange::new(update) {
            Err(BadAccountChange::Field { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let good = || signed_by(&key);
        assert_eq!(field(UpdateAccount { content_public_key: None, ..good() }), "contentPublicKey");
        assert_eq!(field(UpdateAccount { content_public_key_signature: None, ..good() }), "contentPublicKeySignature");
        let short = || Some(Blob::new("AAAA").unwrap());
        assert_eq!(field(UpdateAccount { content_public_key: short(), ..good() }), "contentPublicKey");
        assert!(matches!(AccountChange::new(UpdateAccount::default()), Err(BadAccountChange::Empty)));
    }
}
