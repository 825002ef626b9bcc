//! `ensemble login`: signs in. An account is a key, so the first sign-in creates one.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use ensemble_client::AccountKey;
use ensemble_client::seal::fingerprint;

use super::DONE;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

/// Signs in with the account key of this machine. The first time this creates the key and the account.
#[derive(Debug, Args)]
pub(crate) struct Login {
    /// Import the account key from this file (`-`: standard input)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The name that others see
    #[arg(long)]
    name: Option<String>,
}

impl Login {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let server = context.server()?;
        let (key, is_new) = self.key(context)?;
        if is_new {
            context.home.check_writable()?;
        }
        let me = context.sign_in(key).await?;
        if is_new {
            context.home.store_key(&me.key)?;
        }
        let mut account = me.client.publish_content_key(&me.key).await?;
        if let Some(name) = &self.name {
            account = me.client.set_display_name(name).await?;
        }
        context.home.change_settings(|settings| settings.server = Some(server.clone()))?;
        if context.json {
            print::json(&account, false)?;
            return Ok(DONE);
        }
        print::line(format!("Signed in at {server} as {}.", me.id))?;
        if let Ok(fingerprint) = fingerprint(&account.public_key) {
            print::line(format!("Your key's fingerprint: {fingerprint}"))?;
        }
        if is_new {
            print::line(format!(
                "Your account is the key in {}. Keep a copy in a safe place: without the key the account cannot be restored.",
                context.home.key_path().display()
            ))?;
        }
        Ok(DONE)
    }

    fn key(&self, context: &Context) -> Result<(AccountKey, bool)> {
        let kept = context.home.key()?;
        let Some(path) = &self.key else {
            return Ok(kept.map_or_else(|| (AccountKey::generate(), true), |key| (key, false)));
        };
        let mut text = String::new();
        let read = if path.as_os_str() == "-" {
            std::io::stdin().read_to_string(&mut text).map(drop)
        } else {
            std::fs::read_to_string(path).map(|read| text = read)
        };
        read.map_err(|error| Failure::message(format!("Cannot read {}: {error}.", path.display())))?;
        let key = AccountKey::from_text(&text).ok_or_else(|| {
            Failure::message(format!(
                "{} is not an account key. An account key begins with ensemble-account-key-v1.",
                path.display()
            ))
        })?;
        match kept {
            Some(kept) if kept.public_key() == key.public_key() => Ok((key, false)),
            Some(_) => Err(Failure::message(format!(
                "Another account key exists at {}. Move it away first.",
                context.home.key_path().display()
            ))),
            None => Ok((key, true)),
        }
    }
}
