//! Private shares of a session.

use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::{CreateShare, Share, SharePage, UpdateShare};
use futures_util::Stream;

use crate::error::Result;
use crate::pages;
use crate::retry::Repeat;
use crate::transport::Client;

impl Client {
    /// Shares a session. `false`: the user already had a share, which was replaced.
    pub async fn create_share(&self, session: SessionId, share: &CreateShare) -> Result<(Share, bool)> {
        let path = ["v1", "sessions", &session.to_string(), "shares"];
        self.post(&path, Repeat::Harmless).json(share).send_created().await
    }

    pub async fn share_page(&self, session: SessionId, limit: Option<u32>, cursor: Option<&str>) -> Result<SharePage> {
        let call = self.get(&["v1", "sessions", &session.to_string(), "shares"]);
        call.query("limit", limit).query("cursor", cursor).send().await
    }

    /// All shares of a session, newest first. Only for the owner.
    pub fn shares(&self, session: SessionId) -> impl Stream<Item = Result<Share>> + Send + use<> {
        let client = self.clone();
        pages::walk(move |cursor| {
            let client = client.clone();
            async move {
                let page = client.share_page(session, None, cursor.as_deref()).await?;
                Ok((page.shares, page.next_cursor))
            }
        })
    }

    pub async fn update_share(&self, session: SessionId, user: UserId, update: &UpdateShare) -> Result<Share> {
        let path = ["v1", "sessions", &session.to_string(), "shares", &user.to_string()];
        self.patch(&path, Repeat::Harmless).json(update).send().await
    }

    /// Ends a user's access. Recipients may end their own.
    pub async fn delete_share(&self, session: SessionId, user: UserId) -> Result<()> {
        self.delete(&["v1", "sessions", &session.to_string(), "shares", &user.to_string()]).await
    }
}
