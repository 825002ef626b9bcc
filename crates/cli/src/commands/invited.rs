//! `ensemble join`: joins a session by an invitation, or makes the first account of a server.

use clap::Args;
use ensemble_account::invites::{InviteAnswer, InviteCode, LONGEST_NAME, Standing, admission, look};
use ensemble_account::{Account, Wanted};
use serde_json::json;

use super::DONE;
use super::join::typed_secret;
use super::login::choose_default;
use crate::context::{ChosenBy, Context, anonymous, interrupted};
use crate::environment::environment;
use crate::failure::{Failure, Result};
use crate::print::{self, inline};

/// Joins a session by the address that `ensemble share add --invite` shows: asks for it, makes your account unless you have one there, and
/// waits for the answer. With the address from the log of a new server it makes the first account.
#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The name that others see [default: the one of your account, or of your user on this computer]
    #[arg(long)]
    name: Option<String>,
}

impl Join {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let typed = typed_secret("The address of the invitation (what you type is not shown):")?;
        let code = InviteCode::from_address(&typed).map_err(|_| {
            Failure::message("This is not the address of an invitation: https://…/join#v1.… with 22 and 43 characters.")
        })?;
        let client = anonymous(code.base.clone())?;
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty() || name.len() > LONGEST_NAME) {
            return Err(Failure::message(format!("A name has 1 to {LONGEST_NAME} bytes.")));
        }
        let Standing { is_first, is_open } = look(&client, &code).await?;
        let known = context.home.settings()?.accounts.remove(client.origin());
        if !is_open && !known.is_some_and(|account| account.signed_in) {
            return Err(Failure::message("Someone else has used this invitation already. Ask for a new one."));
        }
        let me = context.begin(client, Wanted::Invited(admission(&code)?)).await?.me;
        let name = self.named(&me).await?;
        let server = me.client.base().as_str().trim_end_matches('/').to_owned();
        choose_default(context, &server, ChosenBy::Login).await?;
        if is_first {
            if context.json {
                print::json(&json!({ "userId": me.id, "session": null }), false)?;
            } else {
                print::line(format!("Signed in at {server} as {}, with the first account of this server.", me.id))?;
            }
            return Ok(DONE);
        }
        // What was set elsewhere may be longer than a claim's.
        let claimed = name.char_indices().take_while(|(at, c)| at + c.len_utf8() <= LONGEST_NAME).map(|(_, c)| c);
        me.claim(&code, &claimed.collect::<String>()).await?;
        print::note(format!(
            "{name}, the invitation is claimed for you. Waiting for the answer of the person who made it."
        ));
        let answer = tokio::select! {
            answer = me.answered(&code) => answer?,
            () = interrupted()? => {
                return Err(Failure::message("There is no answer yet. `ensemble join` with the same address waits again."));
            }
        };
        self.joined(context, &me, &answer).await
    }

    /// What others call this person from now on.
    async fn named(&self, me: &Account) -> Result<String> {
        let account = me.client.account().await?;
        let known = account.display_name.filter(|name| !name.trim().is_empty());
        match (&self.name, known) {
            (None, Some(name)) => Ok(name),
            (wanted, _) => {
                let of_user = || {
                    environment().remove("USER").filter(|name| !name.is_empty()).unwrap_or_else(|| "Guest".to_owned())
                };
                let name = wanted.clone().unwrap_or_else(of_user);
                me.client.set_display_name(&name).await?;
                Ok(name)
            }
        }
    }

    async fn joined(&self, context: &Context, me: &Account, answer: &InviteAnswer) -> Result {
        let session = me.session(answer.session).await?;
        if context.json {
            print::json(&json!({ "userId": me.id, "session": session.id, "owner": answer.owner }), false)?;
            return Ok(DONE);
        }
        let (reference, owner) = (&session.reference, inline(&answer.name));
        let owner = if owner.is_empty() { answer.owner.to_string() } else { owner };
        print::line(format!(
            "{owner} has shared session {reference} with you. `ensemble attach {reference}` shows it."
        ))?;
        Ok(DONE)
    }
}
