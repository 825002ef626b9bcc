//! Which account key is used, and when a new one is created. A key that was lost is never replaced without a word,
//! because its account would seem empty.

use ensemble_account::Account;
use ensemble_account::devices;
use ensemble_account::settings::{KnownAccount, Occasion};
use ensemble_client::{Client, Credential, Error};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::fingerprint;
use ensemble_types::problem::Code;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// What the user wants to sign in with.
pub(crate) enum Wanted {
    /// The key of this machine, or a new one if no account was used here before.
    Usual,
    /// A new account in place of one whose key is lost.
    NewAccount,
    /// This key.
    Import(AccountKey),
    /// This key, although another account was used here before.
    ImportAnother(AccountKey),
}

/// An account that has been signed in.
pub(crate) struct Begun {
    pub(crate) me: Account,
    pub(crate) is_new_key: bool,
}

impl Context {
    /// Signs in, and remembers it. Creates the account key if there is none and none was lost.
    pub(crate) async fn begin(&self, client: Client, wanted: Wanted) -> Result<Begun> {
        // Commands that run at the same time wait here, and then find the key.
        let lock = self.home.lock_account().await?;
        let (key, is_new_key) = choose(self, client.origin(), wanted)?;
        if is_new_key {
            self.home.check_writable()?;
        }
        let client = client.with_credential(Credential::Account(key.clone()));
        let token = client.sign_in().await.map_err(|error| refused(error, client.origin()))?;
        if is_new_key {
            self.home.store_key(&key, &lock)?;
        }
        let before = self.home.settings()?.accounts.remove(client.origin());
        if let Some(before) = before.filter(|before| before.user_id != token.user_id) {
            print::note(format!("{} was used here at {} until now.", described(&before), client.origin()));
        }
        self.home.remember(&client, &key, &token, Occasion::Login)?;
        let own = devices::own(&self.home, &client, &key, token.user_id).await?;
        Ok(Begun { me: Account::new(&self.home, client, key, token.user_id, own), is_new_key })
    }

    /// What `up` signs in with: the key that is here, of whichever account. Fails before anything is started if the key
    /// is lost.
    #[cfg(feature = "up")]
    pub(crate) fn wanted_by_up(&self, new_account: bool) -> Result<Wanted> {
        match self.home.key()? {
            Some(key) => Ok(Wanted::ImportAnother(key)),
            None if new_account => Ok(Wanted::NewAccount),
            None => used_before(self).map_or(Ok(Wanted::Usual), |failure| {
                Err(Failure::message(format!(
                    "{failure} While no server runs: copy the key there yourself (mode 0600), or begin a new account with \
                     `ensemble up --new-account`."
                )))
            }),
        }
    }
}

/// The key to sign in with, and whether it has to be stored.
fn choose(context: &Context, origin: &str, wanted: Wanted) -> Result<(AccountKey, bool)> {
    let path = context.home.key_path();
    let path = path.display();
    let account = context.home.settings()?.accounts.remove(origin);
    match (context.home.key()?, wanted) {
        (Some(key), Wanted::Usual) => match account {
            Some(account) => expected(context, origin, &account, Some(key)).map(|key| (key, false)),
            None => Ok((key, false)),
        },
        (None, Wanted::Usual) => used_before(context).map_or_else(|| Ok((AccountKey::generate(), true)), Err),
        (None, Wanted::NewAccount) => Ok((AccountKey::generate(), true)),
        // The account that was used here before had another key, which is gone.
        (Some(key), Wanted::NewAccount)
            if account.as_ref().is_some_and(|account| account.public_key != key.public_key()) =>
        {
            Ok((key, false))
        }
        (Some(_), Wanted::NewAccount) => Err(Failure::message(format!(
            "The key of your account is in {path}. For another account move it to a safe place first: without it the \
             account cannot be restored."
        ))),
        (Some(kept), Wanted::Import(key) | Wanted::ImportAnother(key)) if kept.public_key() != key.public_key() => {
            Err(Failure::message(format!(
                "{path} is the key of another account. Move it to a safe place first: without it that account cannot be \
                 restored."
            )))
        }
        (kept, Wanted::Import(key)) => {
            if let Some(account) = account.filter(|account| account.public_key != key.public_key()) {
                return Err(Failure::message(format!(
                    "This is not the key of the account that was used here at {origin}: {}. Nothing was changed. To use it all \
                     the same, add --new.",
                    described(&account)
                )));
            }
            Ok((key, kept.is_none()))
        }
        (kept, Wanted::ImportAnother(key)) => Ok((key, kept.is_none())),
    }
}

/// The key, if it is that of the account.
pub(crate) fn expected(
    context: &Context,
    origin: &str,
    account: &KnownAccount,
    key: Option<AccountKey>,
) -> Result<AccountKey> {
    let path = context.home.key_path();
    match key {
        Some(key) if key.public_key() == account.public_key => Ok(key),
        Some(_) => Err(Failure::message(format!(
            "{} was used here at {origin}, but {} is the key of another account. Put the right key there, or sign in \
             with the one that is there: `{}`.",
            described(account),
            path.display(),
            context.typed("login --new")
        ))),
        None => Err(lost(context, origin, &described(account))),
    }
}

/// The failure that names the account whose key is lost. `None` when no account was used on this machine.
fn used_before(context: &Context) -> Option<Failure> {
    let settings = match context.home.settings() {
        Ok(settings) => settings,
        Err(error) => return Some(error.into()),
    };
    // The account of this server first.
    let here = context.account().ok().map(|(client, _)| client.origin().to_owned());
    let here = here.and_then(|origin| settings.accounts.get_key_value(&origin));
    if let Some((origin, account)) = here.or_else(|| settings.accounts.iter().next()) {
        return Some(lost(context, origin, &described(account)));
    }
    // Earlier versions forgot the account when it was signed out, but not its machine.
    let (origin, machine) = settings.machines.iter().next()?;
    Some(lost(context, origin, &format!("The account of machine {machine}")))
}

/// The failure about a lost key. `account` is the subject of its sentence.
fn lost(context: &Context, origin: &str, account: &str) -> Failure {
    Failure::message(format!(
        "{account} was used here at {origin}, but its key is not in {} any more. Restore it from your copy with `{}`. \
         Without a copy, begin a new account with `{}`: it cannot read what the old one has encrypted.",
        context.home.key_path().display(),
        context.typed("login --key FILE"),
        context.typed("login --new"),
    ))
}

/// The account as the subject of a sentence.
fn described(account: &KnownAccount) -> String {
    match fingerprint(&account.public_key) {
        Ok(fingerprint) => format!("Account {} (key {fingerprint})", account.user_id),
        Err(_) => format!("Account {}", account.user_id),
    }
}

/// A refused sign-in. Servers of earlier versions do not name the cause.
fn refused(error: Error, origin: &str) -> Failure {
    if !error.is(Code::Unauthenticated) {
        return error.into();
    }
    Failure::message(format!(
        "The server did not accept the sign-in. It may know itself by another address than {origin}. Use that one, or ask \
         its operator to set PUBLIC_BASE_URL={origin} (with `ensemble up`: --public-url {origin})."
    ))
}
