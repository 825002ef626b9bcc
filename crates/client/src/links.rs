//! Public links: made by a session's owner, opened by whoever has the address.

use ensemble_types::ids::SessionId;
use ensemble_types::links::{CreateLink, Link, PublicView};
use futures_util::Stream;
use reqwest::header::HeaderName;

use crate::error::Result;
use crate::follow::{Event, Source, follow};
use crate::retry::Repeat;
use crate::sessions::Window;
use crate::transport::Client;

impl Client {
    /// Makes the session's link, or makes it anew. `false`: there was one, and it is dead now.
    ///
    /// Sent once: a second arrival would kill the token of the first.
    pub async fn create_link(&self, session: SessionId, link: &CreateLink) -> Result<(Link, bool)> {
        let path = ["v1", "sessions", &session.to_string(), "public-share"];
        self.post(&path, Repeat::Harmful).json(link).send_created().await
    }

    /// Ends the link and all that came in through it. Fine too when there is none.
    pub async fn delete_link(&self, session: SessionId) -> Result<()> {
        self.delete(&["v1", "sessions", &session.to_string(), "public-share"]).await
    }

    /// Opens a link: one use. The key names the viewing, so that a lost answer does not cost another use.
    pub async fn open_link(&self, token: &str, window: Window, key: &str) -> Result<PublicView> {
        let call = self.get(&["v1", "public-sessions", token]).anonymous().idempotent(key);
        call.query("before", window.before).query("after", window.after).query("limit", window.limit).send().await
    }

    /// Another page of a viewing that has begun.
    pub async fn link_page(&self, token: &str, view_token: &str, window: Window) -> Result<PublicView> {
        let call = self.get(&["v1", "public-sessions", token]).anonymous();
        let call = call.header(HeaderName::from_static("x-view-token"), Some(view_token));
        call.query("before", window.before).query("after", window.after).query("limit", window.limit).send().await
    }

    /// A viewing, live; `after` is the `seq` to go on from.
    pub fn follow_link(
        &self,
        token: &str,
        view_token: &str,
        after: Option<i64>,
    ) -> impl Stream<Item = Result<Event>> + Send + use<> {
        let source = Source {
            path: ["v1", "public-sessions", token, "stream"].map(str::to_owned).to_vec(),
            headers: vec![("x-view-token", view_token.to_owned())],
            after: after.map(|seq| seq.to_string()),
            anonymous: true,
            ..Source::default()
        };
        follow(self.clone(), source)
    }
}
