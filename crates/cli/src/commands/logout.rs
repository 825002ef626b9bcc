//! `ensemble logout`: signs out. The key stays, because deleting it would delete the account.

use clap::Args;
use ensemble_account::settings::StoredToken;
use ensemble_account::with_token;
use ensemble_client::Error;
use ensemble_types::problem::Code;

use super::DONE;
use crate::context::{Context, anonymous, now};
use crate::failure::Result;
use crate::print;

/// Signs out at every server: revokes the tokens, and no command signs in again before `ensemble login`. The account key
/// stays where it is.
#[derive(Debug, Args)]
pub(crate) struct Logout {}

impl Logout {
    pub(crate) async fn run(self, context: &Context) -> Result {
        for (origin, stored) in context.home.sign_out()? {
            // The token is removed here already. One that cannot be revoked now expires within the hour.
            if stored.expires_at > now() && !revoked(&stored).await {
                print::note(format!(
                    "{origin} could not be reached to revoke the token. The token expires within the hour."
                ));
            }
        }
        if context.json {
            print::json(&serde_json::json!({ "success": true }), false)?;
        } else {
            let path = context.home.key_path();
            let path = path.display();
            print::line(match context.home.key() {
                Ok(None) => {
                    format!("Signed out. There is no account key in {path}: restore it before you sign in again.")
                }
                _ => format!("Signed out. Your account key is still in {path}; `ensemble login` uses it again."),
            })?;
        }
        Ok(DONE)
    }
}

async fn revoked(stored: &StoredToken) -> bool {
    let Ok(client) = anonymous(stored.base.clone()) else { return false };
    match with_token(&client, stored).sign_out().await {
        Ok(()) => true,
        // A server that does not accept the token needs no revocation.
        Err(error @ Error::Problem(_)) => error.is(Code::Unauthenticated) || error.is_not_found(),
        Err(_) => false,
    }
}
