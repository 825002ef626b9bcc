//! Public links: created by the owner of a session, opened by everyone who has the link.

use ensemble_types::ids::SessionId;
use ensemble_types::links::{CreateLink, Link, LinkState, PublicView};
use reqwest::header::HeaderName;

use crate::error::Result;
use crate::retry::Repeat;
use crate::sessions::Window;
use crate::transport::Client;

impl Client {
    /// Creates or replaces the session's link. `false`: it replaced a link, which no longer works.
    ///
    /// This call is not retried, because a repetition would invalidate the token that the first one created.
    pub async fn create_link(&self, session: SessionId, link: &CreateLink) -> Result<(Link, bool)> {
        let path = ["v1", "sessions", &session.to_string(), "public-share"];
        self.post(&path, Repeat::Harmful).json(link).send_created().await
    }

    /// How the session's link stands, without its token. `LINK_NOT_FOUND`: it has none, or it has expired.
    pub async fn link_state(&self, session: SessionId) -> Result<LinkState> {
        self.get(&["v1", "sessions", &session.to_string(), "public-share"]).send().await
    }

    /// Deletes the link and ends all its open views. Succeeds when there is no link.
    pub async fn delete_link(&self, session: SessionId) -> Result<()> {
        self.delete(&["v1", "sessions", &session.to_string(), "public-share"]).await
    }

    /// Opens a link, which counts as one use. With the same key a repetition does not count as another use.
    pub async fn open_link(&self, token: &str, window: Window, key: &str) -> Result<PublicView> {
        let call = self.get(&["v1", "public-sessions", token]).anonymous().idempotent(key);
        call.query("before", window.before).query("after", window.after).query("limit", window.limit).send().await
    }

    /// Reads another page of an open view.
    pub async fn link_page(&self, token: &str, view_token: &str, window: Window) -> Result<PublicView> {
        let call = self.get(&["v1", "public-sessions", token]).anonymous();
        let call = call.header(HeaderName::from_static("x-view-token"), Some(view_token));
        call.query("before", window.before).query("after", window.after).query("limit", window.limit).send().await
    }
}
