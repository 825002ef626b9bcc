//! The internal listener: keys for peers that verify tokens, and what peers may ask and do about accounts.

use std::str::FromStr;
use std::sync::Arc;

use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{
    Accounts, GetAccountRequest, GetAccountResponse, GivePushesRequest, GivePushesResponse, Keys, ListVersion,
    ListVersionsRequest, ListVersionsResponse, MintVoiceTokenRequest, MintVoiceTokenResponse, PushEvent, Pushes,
    RevokeMachineTokensRequest, RevokeMachineTokensResponse, SnapshotRequest, SnapshotResponse, VoiceTokens,
};
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::{RunId, SessionId, UserId};
use ensemble_types::time::Timestamp;
use futures_util::future::BoxFuture;

use crate::error::Error;
use crate::keys::KeyRing;
use crate::operations::{accounts, devices, pushes, tokens};

/// The most users of one call.
const MOST_USERS: usize = 500;

/// Implements the contracts of this service.
pub(crate) struct RpcServer {
    pub(crate) db: Db,
    pub(crate) ring: Arc<KeyRing>,
}

impl Keys for RpcServer {
    fn snapshot(&self, request: SnapshotRequest) -> BoxFuture<'_, Result<SnapshotResponse, RpcError>> {
        Box::pin(async move {
            let stale = || RpcError::Unavailable("the keys have not been loaded for too long".to_owned());
            self.ring.snapshot(&request.known_version).ok_or_else(stale)
        })
    }
}

impl Accounts for RpcServer {
    fn get(&self, request: GetAccountRequest) -> BoxFuture<'_, Result<GetAccountResponse, RpcError>> {
        Box::pin(async move {
            let account = accounts::read(&self.db, user(&request.user_id)?).await?;
            Ok(GetAccountResponse { user_id: request.user_id, created_at: account.created_at.micros() })
        })
    }

    fn list_versions(&self, request: ListVersionsRequest) -> BoxFuture<'_, Result<ListVersionsResponse, RpcError>> {
        Box::pin(async move {
            if request.user_ids.len() > MOST_USERS {
                return Err(RpcError::Invalid(format!("more than {MOST_USERS} users")));
            }
            let users = request.user_ids.iter().map(|id| user(id)).collect::<Result<Vec<_>, _>>()?;
            let versions = devices::list_versions(&self.db, users).await?;
            let version = |(user, version): (UserId, u32)| ListVersion { user_id: user.to_string(), version };
            Ok(ListVersionsResponse { versions: versions.into_iter().map(version).collect() })
        })
    }

    fn revoke_machine_tokens(
        &self,
        request: RevokeMachineTokensRequest,
    ) -> BoxFuture<'_, Result<RevokeMachineTokensResponse, RpcError>> {
        Box::pin(async move {
            let machine = request.machine_id.parse().map_err(|_| malformed())?;
            let until = Timestamp::from_micros(request.made_until);
            let user = user(&request.user_id)?;
            let revoked = tokens::revoke_of_machine(&self.db, user, machine, until).await.map_err(Error::from)?;
            tracing::info!(machine.id = %request.machine_id, revoked, "Revoked the tokens of a deleted machine");
            Ok(RevokeMachineTokensResponse { revoked: u32::try_from(revoked).unwrap_or(u32::MAX) })
        })
    }
}

impl VoiceTokens for RpcServer {
    fn mint(&self, request: MintVoiceTokenRequest) -> BoxFuture<'_, Result<MintVoiceTokenResponse, RpcError>> {
        Box::pin(async move {
            let voice_session = request.voice_session_id.parse().map_err(|_| malformed())?;
            let until = Timestamp::from_micros(request.expires_at);
            let user = user(&request.user_id)?;
            let token = tokens::mint_for_voice(&self.db, &self.ring, user, voice_session, until).await?;
            Ok(MintVoiceTokenResponse { token })
        })
    }
}

/// The most events of one call.
const MOST_EVENTS: usize = 100;

impl Pushes for RpcServer {
    fn give(&self, request: GivePushesRequest) -> BoxFuture<'_, Result<GivePushesResponse, RpcError>> {
        Box::pin(async move {
            if request.events.len() > MOST_EVENTS {
                return Err(RpcError::Invalid(format!("more than {MOST_EVENTS} events")));
            }
            let events = request.events.into_iter().map(event).collect::<Result<_, _>>()?;
            pushes::give(&self.db, events).await.map_err(Error::from)?;
            Ok(GivePushesResponse {})
        })
    }
}

fn event(given: PushEvent) -> Result<pushes::Event, RpcError> {
    let kind = Some(given.kind.as_str()).filter(|kind| !kind.is_empty()).map(str::parse).transpose();
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if given.attention.len() != 11 || !given.attention.bytes().all(is_base64url) {
        return Err(RpcError::Invalid("an attention is malformed".to_owned()));
    }
    let session: Option<SessionId> = id(&given.session_id)?;
    let run: Option<RunId> = id(&given.run_id)?;
    if session.is_some() == run.is_some() {
        return Err(RpcError::Invalid("an event is of a session or of a run".to_owned()));
    }
    Ok(pushes::Event {
        user: user(&given.user_id)?,
        kind: kind.map_err(|_| RpcError::Invalid("a kind is unknown".to_owned()))?,
        session: session.map(|id| id.to_string()),
        run: run.map(|id| id.to_string()),
        attention: given.attention,
    })
}

/// An id, or none.
fn id<T: FromStr>(text: &str) -> Result<Option<T>, RpcError> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| malformed()) }
}

fn user(id: &str) -> Result<UserId, RpcError> {
    id.parse().map_err(|_| malformed())
}

fn malformed() -> RpcError {
    RpcError::Invalid("an id is malformed".to_owned())
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        match error {
            Error::AccountNotFound => Self::NotFound(error.to_string()),
            Error::Store(StoreError::Unavailable { .. } | StoreError::Busy { .. }) => {
                Self::Unavailable(error.to_string())
            }
            other => Self::Internal(other.to_string()),
        }
    }
}
