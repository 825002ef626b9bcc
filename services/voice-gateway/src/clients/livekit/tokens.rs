//! Tokens for LiveKit: short ones for our own calls, and one with which a person joins a room.

use std::time::Duration;

use livekit_api::access_token::{AccessToken, AccessTokenError, VideoGrants};
use secrecy::{ExposeSecret, SecretString};

/// A pair of LiveKit's API key and secret.
#[derive(Clone, Debug)]
pub(crate) struct ApiKey {
    pub(crate) key: String,
    pub(crate) secret: SecretString,
}

#[derive(Debug, thiserror::Error)]
#[error("the token could not be signed")]
pub(crate) struct TokenError(#[from] AccessTokenError);

/// Long enough for a call with its retries, short enough that a leaked header is worth nothing.
const CALL_TTL: Duration = Duration::from_secs(60);

impl ApiKey {
    /// A token for one call of ours.
    pub(super) fn for_call(&self, grants: VideoGrants) -> Result<String, TokenError> {
        Ok(self.token().with_ttl(CALL_TTL).with_grants(grants).to_jwt()?)
    }

    /// A token with which a person may join one room, speak, listen and send data, and nothing else. It cannot create the
    /// room, and contains nothing that other participants must not read.
    pub(crate) fn for_human(&self, room: &str, identity: &str, ttl: Duration) -> Result<String, TokenError> {
        let grants = VideoGrants {
            room_join: true,
            room: room.to_owned(),
            can_publish: Some(true),
            can_publish_sources: vec!["microphone".to_owned()],
            can_subscribe: Some(true),
            // Text streams, RPC and audio before the connection is up all travel as data.
            can_publish_data: Some(true),
            ..Default::default()
        };
        Ok(self.token().with_ttl(ttl).with_identity(identity).with_grants(grants).to_jwt()?)
    }

    fn token(&self) -> AccessToken {
        AccessToken::with_api_key(&self.key, self.secret.expose_secret())
    }
}
