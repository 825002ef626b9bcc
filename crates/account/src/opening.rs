//! Which account key is used, and when a new one is created. A key that was lost is never replaced without a word,
//! because its account would seem empty.

use ensemble_client::{Client, Credential};
use ensemble_protocol::AccountKey;
use ensemble_types::invites::Admission;
use ensemble_types::problem::Code;

use crate::account::{Account, fingerprint};
use crate::devices;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::notice::Notice;
use crate::settings::{KnownAccount, Occasion};

/// What the user wants to sign in with.
pub enum Wanted {
    /// The key of this machine, or a new one if no account was used here before.
    Usual,
    /// The same, where a new account needs an invitation.
    Invited(Admission),
    /// A new account in place of one whose key is lost.
    NewAccount,
    /// This key.
    Import(AccountKey),
    /// This key, although another account was used here before.
    ImportAnother(AccountKey),
}

/// An account that has been signed in.
pub struct Begun {
    pub me: Account,
    pub is_new_key: bool,
}

impl Account {
    /// Signs in, and remembers it. Creates the account key if there is none and none was lost.
    pub async fn begin(home: &Home, client: Client, wanted: Wanted) -> Result<Begun> {
        // Programs that run at the same time wait here, and then find the key.
        let lock = home.lock_account().await?;
        let admission = match &wanted {
            Wanted::Invited(admission) => Some(admission.clone()),
            _ => None,
        };
        let (key, is_new_key) = choose(home, client.origin(), wanted)?;
        if is_new_key {
            home.check_writable()?;
        }
        // A sign-in that spends an invitation makes its account for this key only.
        let is_kept = is_new_key && admission.is_some();
        if is_kept {
            home.store_key(&key, &lock)?;
        }
        let client = client.with_credential(match admission {
            Some(admission) => Credential::Invited(key.clone(), admission),
            None => Credential::Account(key.clone()),
        });
        let origin = client.origin().to_owned();
        let token = client.sign_in().await.map_err(|error| {
            // Servers of earlier versions do not name the cause.
            if error.is(Code::Unauthenticated) { Error::SignInRefused { origin: origin.clone() } } else { error.into() }
        })?;
        if is_new_key && !is_kept {
            home.store_key(&key, &lock)?;
        }
        let before = home.settings()?.accounts.remove(&origin);
        if let Some(before) = before.filter(|before| before.user_id != token.user_id) {
            home.say(Notice::AnotherAccount { account: described(&before), origin });
        }
        home.remember(&client, &key, &token, Occasion::Login)?;
        let own = devices::own(home, &client, &key, token.user_id).await?;
        Ok(Begun { me: Self::new(home, client, key, token.user_id, own)?, is_new_key })
    }
}

impl Account {
    /// Moves the account that is signed in at an address to one where none was used yet: the server has another address now. What this
    /// computer knows of the account holds there. `None`: there is nothing to move.
    ///
    /// # Errors
    /// [`Error::NotMoved`]: no server there takes the key for this account. Others: the server shows what this computer does not take from
    /// it, for example an older list of devices. Nothing is moved then.
    pub async fn moved(home: &Home, client: Client, from: &str) -> Result<Option<Self>> {
        let _lock = home.lock_account().await?;
        let (settings, to) = (home.settings()?, client.origin().to_owned());
        let known = settings.accounts.get(from).filter(|known| known.signed_in).cloned();
        let (Some(known), Some(key), false) = (known, home.key()?, settings.accounts.contains_key(&to)) else {
            return Ok(None);
        };
        let client = client.with_credential(Credential::Device(key.clone()));
        // A server that refuses once must not lead the person to begin there with nothing known.
        let not_moved = |why: String| Error::NotMoved { from: from.to_owned(), to: to.clone(), why };
        let token = client.sign_in().await.map_err(|error| not_moved(error.to_string()))?;
        if token.user_id != known.user_id {
            return Err(not_moved("it names another account".to_owned()));
        }
        let first_at = Some(known.first_at.unwrap_or_else(|| from.to_owned()));
        let moved = KnownAccount { user_id: known.user_id, public_key: key.public_key(), signed_in: false, first_at };
        home.change_settings(|settings| drop(settings.accounts.insert(to.clone(), moved)))?;
        let own = match devices::own(home, &client, &key, token.user_id).await {
            Ok(own) => own,
            Err(error) => {
                home.change_settings(|settings| drop(settings.accounts.remove(&to)))?;
                return Err(error);
            }
        };
        home.remember(&client, &key, &token, Occasion::Login)?;
        Self::new(home, client, key, token.user_id, own).map(Some)
    }
}

/// The key to sign in with, and whether it has to be stored.
fn choose(home: &Home, origin: &str, wanted: Wanted) -> Result<(AccountKey, bool)> {
    let account = home.settings()?.accounts.remove(origin);
    let is_other = |key: &AccountKey| account.as_ref().filter(|account| account.public_key != key.public_key());
    match (home.key()?, wanted) {
        (Some(key), Wanted::Usual | Wanted::Invited(_)) => match account {
            Some(account) => expected(home, origin, &account, Some(key)).map(|key| (key, false)),
            None => Ok((key, false)),
        },
        (None, Wanted::Usual | Wanted::Invited(_)) => {
            check_unused(home, origin).map(|()| (AccountKey::generate(), true))
        }
        (None, Wanted::NewAccount) => Ok((AccountKey::generate(), true)),
        // The account that was used here before had another key, which is gone.
        (Some(key), Wanted::NewAccount) if is_other(&key).is_some() => Ok((key, false)),
        (Some(_), Wanted::NewAccount) => Err(Error::KeyHere(home.key_path())),
        (Some(kept), Wanted::Import(key) | Wanted::ImportAnother(key)) if kept.public_key() != key.public_key() => {
            Err(Error::OtherKeyKept(home.key_path()))
        }
        (kept, Wanted::Import(key)) => match is_other(&key) {
            Some(account) => Err(Error::NotTheKeyUsed { origin: origin.to_owned(), account: described(account) }),
            None => Ok((key, kept.is_none())),
        },
        (kept, Wanted::ImportAnother(key)) => Ok((key, kept.is_none())),
    }
}

/// The key, if it is that of the account.
pub(crate) fn expected(
    home: &Home,
    origin: &str,
    account: &KnownAccount,
    key: Option<AccountKey>,
) -> Result<AccountKey> {
    match key {
        Some(key) if key.public_key() == account.public_key => Ok(key),
        Some(_) => {
            Err(Error::OtherKeyHere { account: described(account), origin: origin.to_owned(), path: home.key_path() })
        }
        None => Err(lost(home, origin, described(account))),
    }
}

/// Fails with the account whose key is lost, if one was used on this computer. That of this server comes first.
pub fn check_unused(home: &Home, origin: &str) -> Result<()> {
    let settings = home.settings()?;
    let here = settings.accounts.get_key_value(origin);
    if let Some((origin, account)) = here.or_else(|| settings.accounts.iter().next()) {
        return Err(lost(home, origin, described(account)));
    }
    // Earlier versions forgot the account when it was signed out, but not its machine.
    match settings.machines.iter().next() {
        Some((origin, machine)) => Err(lost(home, origin, format!("The account of machine {machine}"))),
        None => Ok(()),
    }
}

/// `account` is the subject of a sentence.
fn lost(home: &Home, origin: &str, account: String) -> Error {
    Error::KeyLost { account, origin: origin.to_owned(), path: home.key_path() }
}

/// The account as the subject of a sentence.
fn described(account: &KnownAccount) -> String {
    match fingerprint(&account.public_key) {
        Ok(fingerprint) => format!("Account {} (key {fingerprint})", account.user_id),
        Err(_) => format!("Account {}", account.user_id),
    }
}
