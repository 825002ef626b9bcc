//! Invitations.

use std::time::Duration;

use ensemble_types::invites::{AnswerInvite, ClaimInvite, CreateInvite, CreatedInvite, Invite, Invites, OwnInvite};
use serde::de::IgnoredAny;

use crate::error::Result;
use crate::retry::Repeat;
use crate::transport::Client;

impl Client {
    /// Makes an invitation.
    pub async fn create_invite(&self, invite: &CreateInvite) -> Result<CreatedInvite> {
        self.post(&["v1", "invites"], Repeat::Harmful).json(invite).send().await
    }

    /// The caller's invitations, the newest first.
    pub async fn invites(&self) -> Result<Vec<OwnInvite>> {
        self.get(&["v1", "invites"]).send::<Invites>().await.map(|found| found.invites)
    }

    /// An invitation, when it changes or after this time. Only the account that made it sees the claim.
    pub async fn invite(&self, id: &str, wait: Duration) -> Result<Invite> {
        let call = self.get(&["v1", "invites", id]).query("waitMs", Some(wait.as_millis()));
        call.waiting(wait).send().await
    }

    /// Claims an invitation. The same account may do so again.
    pub async fn claim_invite(&self, id: &str, claim: &ClaimInvite) -> Result<Invite> {
        self.post(&["v1", "invites", id, "claim"], Repeat::Harmless).json(claim).send().await
    }

    /// Answers the claim of an invitation. Again is the same.
    pub async fn answer_invite(&self, id: &str, answer: &AnswerInvite) -> Result<()> {
        let call = self.post(&["v1", "invites", id, "answer"], Repeat::Harmless).json(answer);
        call.send::<IgnoredAny>().await.map(drop)
    }

    /// Ends an invitation.
    pub async fn end_invite(&self, id: &str) -> Result<()> {
        self.delete(&["v1", "invites", id]).await
    }
}
