//! What the command line remembers about servers: which one to use, and for each the account, the token and this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ensemble_client::{Client, Token};
use ensemble_protocol::AccountKey;
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::time::Timestamp;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::home::{Home, Owner};
use crate::known_sessions::{Revocation, Unfinished};

const SETTINGS: &str = "settings.json";
const TOKENS: &str = "tokens.json";
/// The token file of earlier versions, which had one server.
const OLD_TOKEN: &str = "token.json";

/// The settings that are not secret.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The server that `ensemble login` or `ensemble config server` chose.
    pub server: Option<String>,
    /// The server that `ensemble up` runs on this machine. It is used while none is chosen.
    pub local_server: Option<String>,
    /// The terminal does not ring when an agent asks.
    pub is_quiet: bool,
    /// The account that was used last, by server origin. It stays after a logout.
    pub accounts: BTreeMap<String, KnownAccount>,
    /// This machine's id, by server origin.
    pub machines: BTreeMap<String, MachineId>,
    /// This machine's id, by user. It stays when another account is used at the server.
    pub account_machines: BTreeMap<UserId, MachineId>,
    /// The data that `ensemble up` used last, by server origin and public key.
    pub data: BTreeMap<String, BTreeMap<String, KnownData>>,
    /// This machine where it was linked by `ensemble runner link`, by server origin.
    pub linked_machines: BTreeMap<String, LinkedMachine>,
    /// The directories that the runner allows which was started last on this machine, by server origin.
    pub runner_roots: BTreeMap<String, Vec<PathBuf>>,
    // What follows is kept by place ([`Home::place`]).
    /// The versions of device lists without a device for which sessions may still need new keys, by place.
    pub unfinished_removals: BTreeMap<String, u32>,
    /// What is left of these removals where the rest is done, by place.
    pub left_of_removals: BTreeMap<String, LeftOfRemoval>,
    /// The devices whose shares and rights are kept, each with the digest of the list that removes it, by place. A list that the
    /// server has not taken keeps nothing.
    pub keep_rights: BTreeMap<String, BTreeMap<String, String>>,
    /// Who is still to get the new key of a session, by place and session.
    pub unfinished_rekeys: BTreeMap<String, BTreeMap<SessionId, Unfinished>>,
    /// Who lost access to a session that is to get a new key because of it, by place and session.
    pub removed_shares: BTreeMap<String, BTreeMap<SessionId, BTreeSet<UserId>>>,
    /// Who may not command the agent of a session any more, while its machine has not confirmed it, by place and session.
    pub revocations: BTreeMap<String, BTreeMap<SessionId, BTreeMap<UserId, Revocation>>>,
    /// When the server has called a session missing of which something is not finished, in seconds since 1970, by place.
    pub missing_sessions: BTreeMap<String, BTreeMap<SessionId, u64>>,
    /// The account key that was first seen for a user, by place.
    pub known_users: BTreeMap<String, BTreeMap<String, String>>,
    /// The name that a user had when something was shared with them first, in lower case, by place. Another user does not get it.
    pub known_names: BTreeMap<String, BTreeMap<String, UserId>>,
}

/// The sessions that a removal could not look at, because what is remembered of them could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOfRemoval {
    /// The list by which all others were looked at.
    pub version: u32,
    pub sessions: BTreeSet<SessionId>,
}

/// A data directory of `ensemble up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownData {
    pub id: String,
    pub path: PathBuf,
}

/// A machine that works for an account whose key is not on this computer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkedMachine {
    /// The server's address with its path.
    pub server: String,
    pub owner: UserId,
    pub machine: MachineId,
}

/// An account that was used on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownAccount {
    pub user_id: UserId,
    pub public_key: String,
    /// False after a logout. Commands then make no request.
    pub signed_in: bool,
    /// The address at which this computer has used the account first, if the person has moved it here ([`Home::place`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_at: Option<String>,
}

/// The token of the last sign-in at a server. A secret.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredToken {
    /// The server's address with its path, where the token is revoked.
    #[serde(default)]
    pub base: String,
    pub public_key: String,
    pub user_id: UserId,
    pub token: String,
    pub expires_at: Timestamp,
}

/// The tokens, by server origin.
pub type Tokens = BTreeMap<String, StoredToken>;

/// Why a sign-in is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The user signs in.
    Login,
    /// A command of a user who is signed in needs a new token.
    Renewal,
}

impl Settings {
    /// This computer as a machine of the account at this address, also where the account has moved there.
    pub fn machine(&self, origin: &str) -> Option<&MachineId> {
        let first = self.accounts.get(origin).and_then(|known| known.first_at.as_ref());
        self.machines.get(origin).or_else(|| self.machines.get(first?))
    }

    fn place<'a>(&'a self, origin: &'a str, user: UserId) -> &'a str {
        let known = self.accounts.get(origin).filter(|known| known.user_id == user);
        known.and_then(|known| known.first_at.as_deref()).unwrap_or(origin)
    }

    /// Another place of the user of an account at this address.
    pub fn elsewhere(&self, origin: &str, user: UserId) -> Option<&str> {
        let place = self.place(origin, user);
        let of_user = self.accounts.iter().filter(|(_, known)| known.user_id == user);
        of_user.map(|(at, known)| known.first_at.as_ref().unwrap_or(at).as_str()).find(|other| *other != place)
    }
}

impl Home {
    /// Where this computer keeps what it knows of a user's account: the address from which the person has moved it here
    /// ([`crate::Account::moved`]), or this one. A server names the user itself, so it cannot choose the place.
    pub fn place(&self, origin: &str, user: UserId) -> Result<String> {
        Ok(self.settings()?.place(origin, user).to_owned())
    }

    /// The settings.
    pub fn settings(&self) -> Result<Settings> {
        let mut settings: Settings = self.read_json(SETTINGS)?.unwrap_or_default();
        self.add_old_account(&mut settings);
        Ok(settings)
    }

    /// Adds the account of an earlier version's token.
    fn add_old_account(&self, settings: &mut Settings) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Old {
            origin: String,
            #[serde(flatten)]
            token: StoredToken,
        }
        if let Ok(Some(Old { origin, token })) = self.read_json::<Old>(OLD_TOKEN) {
            let StoredToken { user_id, public_key, .. } = token;
            settings.accounts.entry(origin).or_insert(KnownAccount {
                user_id,
                public_key,
                signed_in: true,
                first_at: None,
            });
        }
    }

    /// Changes the settings in one step.
    pub fn change_settings(&self, change: impl FnOnce(&mut Settings)) -> Result<()> {
        self.change(|settings| {
            change(settings);
            Ok(())
        })
    }

    /// The tokens. A file that cannot be read is ignored, because a sign-in creates it again.
    pub fn tokens(&self) -> Tokens {
        self.read_json(TOKENS).ok().flatten().unwrap_or_default()
    }

    /// Remembers the account and the token of a sign-in.
    pub fn remember(&self, client: &Client, key: &AccountKey, token: &Token, why: Occasion) -> Result<()> {
        let origin = client.origin();
        let (user_id, public_key) = (token.user_id, key.public_key());
        let mut account = KnownAccount { user_id, public_key, signed_in: true, first_at: None };
        let stored = StoredToken {
            base: client.base().to_string(),
            public_key: key.public_key(),
            user_id: token.user_id,
            token: token.token.expose_secret().to_owned(),
            expires_at: token.expires_at,
        };
        let mut left = None;
        self.change_with_tokens(|settings, tokens| {
            let before = settings.accounts.get(origin);
            if why == Occasion::Renewal && before.is_none_or(|account| !account.signed_in) {
                // The user has logged out in the meantime.
                return;
            }
            if let Some(before) = before.filter(|before| before.user_id != account.user_id).cloned() {
                if let Some(machine) = settings.machines.remove(origin) {
                    settings.account_machines.entry(before.user_id).or_insert_with(|| machine.clone());
                    left = Some((before, machine));
                }
                if let Some(machine) = settings.account_machines.get(&account.user_id) {
                    settings.machines.insert(origin.to_owned(), machine.clone());
                }
            }
            let place = settings.place(origin, user_id);
            account.first_at = (place != origin).then(|| place.to_owned());
            settings.accounts.insert(origin.to_owned(), account);
            tokens.insert(origin.to_owned(), stored);
        })?;
        match left {
            Some((before, machine)) => {
                let owner = Owner { user: before.user_id, account: &before.public_key };
                self.adopt_machine(origin, owner, &machine)
            }
            None => Ok(()),
        }
    }

    /// Marks all accounts as signed out, and returns the tokens to revoke.
    pub fn sign_out(&self) -> Result<Tokens> {
        let mut removed = Tokens::new();
        self.change_with_tokens(|settings, tokens| {
            settings.accounts.values_mut().for_each(|account| account.signed_in = false);
            removed = std::mem::take(tokens);
        })?;
        Ok(removed)
    }

    /// The settings are not changed meanwhile, because commands can run at the same time.
    fn change_with_tokens(&self, change: impl FnOnce(&mut Settings, &mut Tokens)) -> Result<()> {
        self.change(|settings| {
            self.renew_json(TOKENS, |tokens| {
                change(settings, tokens);
                Ok(())
            })
        })
    }

    fn change(&self, change: impl FnOnce(&mut Settings) -> Result<()>) -> Result<()> {
        self.update_json(SETTINGS, |settings| {
            self.add_old_account(settings);
            change(settings)
        })?;
        if self.store().get(OLD_TOKEN)?.is_some() { self.remove(OLD_TOKEN) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_command_that_ends_after_a_logout_does_not_undo_it() {
        let home = Home::of_test_in_memory();
        let client = Client::builder("http://127.0.0.1:8080").build().unwrap();
        let (key, user) = (AccountKey::generate(), UserId::generate());
        let token = |text: &str| Token::stored(text.to_owned().into(), user, Timestamp::from_micros(0), Duration::ZERO);
        let is_signed_in = || home.settings().unwrap().accounts[client.origin()].signed_in;

        home.remember(&client, &key, &token("first"), Occasion::Login).unwrap();
        home.remember(&client, &key, &token("second"), Occasion::Renewal).unwrap();
        let removed = home.sign_out().unwrap();
        assert_eq!(removed[client.origin()].token, "second");
        home.remember(&client, &key, &token("late"), Occasion::Renewal).unwrap();
        assert!(!is_signed_in() && home.tokens().is_empty());
        home.remember(&client, &key, &token("third"), Occasion::Login).unwrap();
        assert!(is_signed_in());
    }
}
