//! `ensemble login`: signs in. An account is a key, so the first sign-in creates one.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use ensemble_account::{Account, KEY_FORM, Wanted, fingerprint};
use ensemble_protocol::AccountKey;

use super::DONE;
use crate::context::{ChosenBy, Context, anonymous, answers};
use crate::failure::{Failure, Result};
use crate::print;

/// Signs in with the account key of this machine. The first time this creates the key and the account. The first server
/// becomes the default server; `ensemble config server` changes it.
#[derive(Debug, Default, Args)]
pub(crate) struct Login {
    /// Import the account key from this file (`-`: standard input)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Begin a new account although another one was used here, for example because its key is lost
    #[arg(long)]
    new: bool,
    /// Add this computer to an account that you use elsewhere: asks for the address that `ensemble link` shows there
    #[arg(long, conflicts_with_all = ["key", "new"])]
    link: bool,
    /// Bring your account back with its recovery words: asks for them
    #[arg(long, conflicts_with_all = ["key", "new", "link"])]
    recover: bool,
    /// The name that others see
    #[arg(long)]
    name: Option<String>,
}

impl Login {
    pub(crate) async fn run(self, context: &Context) -> Result {
        if self.link {
            let me = super::join::as_device(context).await?;
            return joined(context, me, self.name.as_deref()).await;
        }
        let (server, by) = context.server()?;
        if self.recover {
            let me = super::recovery::recover(context, anonymous(server)?).await?;
            return joined(context, me, self.name.as_deref()).await;
        }
        let wanted = match (self.key.as_deref().map(import).transpose()?, self.new) {
            (Some(key), false) => Wanted::Import(key),
            (Some(key), true) => Wanted::ImportAnother(key),
            (None, true) => Wanted::NewAccount,
            (None, false) => Wanted::Usual,
        };
        let begun = context.begin(anonymous(server.clone())?, wanted).await?;
        let me = begun.me;
        let mut account = me.client.account().await?;
        if let Some(name) = &self.name {
            account = me.client.set_display_name(name).await?;
        }
        let default = choose_default(context, &server, by).await?;
        if context.json {
            print::json(&account, false)?;
            return Ok(DONE);
        }
        print::line(format!("Signed in at {server} as {}.", me.id))?;
        if let Some(place) = context.home.settings()?.elsewhere(me.client.origin(), me.id) {
            print::line(format!(
                "As the server says, it is the account that you use at {place}. What this computer knows of it there does not count here. When a \
                 server has a new address, `ensemble config server URL` moves the account."
            ))?;
        }
        if let Ok(fingerprint) = fingerprint(&account.public_key) {
            print::line(format!("Your key's fingerprint: {fingerprint}"))?;
        }
        if begun.is_new_key {
            print::line(format!(
                "This device's key is in {}. Do not copy it: add other computers with `ensemble link`, and make recovery words with \
                 `ensemble recovery`, because without another device and without words a lost account cannot be restored.",
                context.home.key_path().display()
            ))?;
        }
        if anonymous(default.clone()).is_ok_and(|default| default.origin() != me.client.origin()) {
            print::line(format!(
                "Your default server is still {default}. `ensemble config server {server}` makes this one the default."
            ))?;
        }
        Ok(DONE)
    }
}

/// The sign-in of a device that was added on another one.
async fn joined(context: &Context, me: Account, name: Option<&str>) -> Result {
    let account = match name {
        Some(name) => me.client.set_display_name(name).await?,
        None => me.client.account().await?,
    };
    let server = me.client.base().as_str().trim_end_matches('/').to_owned();
    choose_default(context, &server, ChosenBy::Login).await?;
    if context.json {
        print::json(&account, false)?;
        return Ok(DONE);
    }
    print::line(format!("This computer is a device of your account {}, signed in at {server}.", me.id))?;
    if let Ok(fingerprint) = me.fingerprint() {
        print::line(format!("The account's fingerprint: {fingerprint}"))?;
    }
    Ok(DONE)
}

/// Makes the server the default one if the user has none yet. Returns the default server.
pub(super) async fn choose_default(context: &Context, server: &str, by: ChosenBy) -> Result<String> {
    let settings = context.home.settings()?;
    let local = settings.local_server.filter(|_| matches!(by, ChosenBy::Option | ChosenBy::Environment));
    let other = match (settings.server, local) {
        (Some(chosen), _) => Some(chosen),
        // The server of `ensemble up` is used by other commands as long as it is up.
        (None, Some(local)) if answers(&local).await => Some(local),
        (None, _) => None,
    };
    if let Some(other) = other {
        return Ok(other);
    }
    context.home.change_settings(|settings| settings.server = Some(server.to_owned()))?;
    Ok(server.to_owned())
}

fn import(path: &Path) -> Result<AccountKey> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map_err(|error| Failure::message(format!("Cannot read {}: {error}.", path.display())))?;
    AccountKey::from_text(&text).ok_or_else(|| {
        Failure::message(format!("{} is not an account key. An account key is one line: {KEY_FORM}.", path.display()))
    })
}
