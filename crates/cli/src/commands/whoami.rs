//! `ensemble whoami`: shows the account, and the fingerprint that others compare.

use clap::Args;
use ensemble_client::seal::fingerprint;

use super::DONE;
use crate::context::Context;
use crate::failure::Result;
use crate::print;

/// Shows your user id, which others need to share with you, and the fingerprint of your key, which they should compare.
#[derive(Debug, Args)]
pub(crate) struct Whoami {}

impl Whoami {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let account = me.client.account().await?;
        if context.json {
            print::json(&account, false)?;
            return Ok(DONE);
        }
        print::line(format!("user         {}", account.id))?;
        if let Some(name) = &account.display_name {
            print::line(format!("name         {}", print::inline(name)))?;
        }
        if let Ok(fingerprint) = fingerprint(&account.public_key) {
            print::line(format!("fingerprint  {fingerprint}"))?;
        }
        print::line(format!("server       {}", me.client.origin()))?;
        print::line(format!("key          {}", context.home.key_path().display()))?;
        Ok(DONE)
    }
}
