//! `ensemble logout`: forgets the server and the token. The key stays, because deleting it would delete the account.

use clap::Args;

use super::DONE;
use crate::context::Context;
use crate::failure::Result;
use crate::print;

/// Forgets the server and the token. The account key stays where it is.
#[derive(Debug, Args)]
pub(crate) struct Logout {}

impl Logout {
    pub(crate) async fn run(self, context: &Context) -> Result {
        // A token that cannot be revoked now is removed here anyway, and expires within the hour.
        let revoked = match context.stored_client() {
            Ok(Some(client)) => client.sign_out().await.is_ok(),
            _ => true,
        };
        if !revoked {
            print::note("The server could not be reached to revoke the token. The token expires within the hour.");
        }
        context.home.forget_token()?;
        context.home.change_settings(|settings| settings.server = None)?;
        if context.json {
            print::json(&serde_json::json!({ "success": true }), false)?;
        } else {
            print::line(format!(
                "Signed out. Your account key is still in {}; `ensemble login` uses it again.",
                context.home.key_path().display()
            ))?;
        }
        Ok(DONE)
    }
}
