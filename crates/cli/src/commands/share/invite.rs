//! `ensemble share add --invite`: one link that brings one person into a session.

use std::time::Duration;

use ensemble_account::Account;
use ensemble_account::invites::{Guest, Inviting};
use ensemble_protocol::transcript::words::May;
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::Session;
use ensemble_types::shares::ShareLevel;

use super::Level;
use super::people::remember;
use super::users::{ended, grant, may};
use crate::commands::link::picture;
use crate::confirm;
use crate::context::{Context, interrupted};
use crate::failure::{Failure, Result, is_loopback};
use crate::print;

/// What the link lets a person do.
pub(super) struct Invitation {
    pub(super) level: Level,
    pub(super) approve: bool,
    pub(super) hours: u16,
}

impl Invitation {
    pub(super) async fn run(self, context: &Context, me: &Account, id: SessionId) -> Result {
        if matches!(self.level, Level::Admin) {
            return Err(Failure::message(
                "An invitation lets a person view or edit. `ensemble share change` makes someone who has joined an admin.",
            ));
        }
        let (session, origin) = (me.session(id).await?, me.client.origin());
        let lifetime = Duration::from_secs(u64::from(self.hours) * 3_600);
        let inviting = me.invite(&session, origin, lifetime).await?;
        let guest = tokio::select! {
            guest = self.guest(me, &session, &inviting) => guest,
            () = interrupted()? => Err(Failure::message("The invitation was ended. No one has joined by it.")),
        };
        let guest = match guest {
            Ok(guest) => guest,
            Err(failure) => {
                inviting.end().await;
                return Err(failure);
            }
        };
        // From here on the guest has the session, and must not wait for an answer in vain.
        let joined = self.share(context, me, (&session, &inviting), &guest).await;
        joined.map_err(|failure| {
            let (reference, user) = (&session.reference, guest.user);
            Failure::message(format!(
                "{failure} {} may have the session all the same: `ensemble share remove {reference} {user}` ends that.",
                guest.name
            ))
        })
    }

    /// Who has claimed the invitation, and may join.
    async fn guest(&self, me: &Account, session: &Session, inviting: &Inviting<'_>) -> Result<Guest> {
        self.show(me, &inviting.code().address())?;
        let guest = inviting.claimed().await?;
        // A link that was passed on must not command a machine.
        if !matches!(self.level, Level::View) || self.approve {
            let question = self.question(session, &guest);
            let agreed = tokio::task::spawn_blocking(move || {
                confirm::forget_typed();
                confirm::change(&question)
            });
            let agreed =
                agreed.await.map_err(|error| Failure::message(format!("Standard input cannot be read: {error}.")))?;
            if !agreed? {
                return Err(Failure::message("Nothing was shared, and the invitation was ended."));
            }
        }
        Ok(guest)
    }

    async fn share(
        &self,
        context: &Context,
        me: &Account,
        (session, inviting): (&Session, &Inviting<'_>),
        guest: &Guest,
    ) -> Result {
        let level = ShareLevel::from(self.level);
        let may = may(level, self.approve);
        let (session, share) = me.share_session(session.id, (guest.user, level)).await?;
        let outcome = grant(context, me, &session, guest.user, may.clone(), true).await?;
        remember(context, me, guest.user).await?;
        let name = me.client.account().await?.display_name.unwrap_or_default();
        inviting.answer(&session, (level, Some(may).filter(|may| *may != May::Nothing)), &name).await?;
        if context.json {
            print::json(&share, false)?;
        } else {
            let (name, reference, user) = (&guest.name, &session.reference, guest.user);
            print::line(format!(
                "{name} has joined session {reference}. `ensemble share remove {reference} {user}` ends that."
            ))?;
        }
        ended(outcome)
    }

    fn question(&self, session: &Session, guest: &Guest) -> String {
        let what = if self.approve { "answer the agent of" } else { "write to" };
        format!("{} (joined by your link) wants to {what} session {}. Allow it", guest.name, session.reference)
    }

    fn show(&self, me: &Account, address: &str) -> Result<()> {
        if is_loopback(me.client.origin()) {
            print::note(format!(
                "{} leads to this computer only. `ensemble up --tunnel` gives it an address for others.\n",
                me.client.origin()
            ));
        }
        print::note(format!(
            "Send this address to one person, who types it into `ensemble join`:\n\n{address}\n\nIt is a secret, works once, and for {} hours. \
             Waiting; Ctrl-C ends the invitation.",
            self.hours
        ));
        print::note(picture(address)?);
        Ok(())
    }
}
