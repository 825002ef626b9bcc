//! What a voice agent may read: its token from identity, runs from orchestrator and sessions from session-store.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use ensemble_chassis::auth::VoiceToolClaims;
use ensemble_chassis::{Clock, RpcMount};
use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{MintVoiceTokenRequest, MintVoiceTokenResponse, VoiceTokens, mount_voice_tokens};
use ensemble_rpc::orchestrator::{
    ListRunsRequest, ListRunsResponse, RunBrief, RunReader, ShowRunRequest, ShowRunResponse, TaskBrief,
    mount_run_reader,
};
use ensemble_rpc::sessions::{
    ListSessionsRequest, ListSessionsResponse, SessionBrief, SessionReader, mount_session_reader,
};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use futures_util::future::BoxFuture;

use super::{Inner, Peers, here, lock};

/// Runs and sessions by the ids of their owners.
#[derive(Default)]
pub(super) struct Work {
    runs: Mutex<Vec<(String, RunBrief, Vec<TaskBrief>)>>,
    sessions: Mutex<Vec<(String, SessionBrief)>>,
    session_store_away: AtomicBool,
}

pub(super) fn mounts(inner: &Arc<Inner>) -> Vec<RpcMount> {
    let mut mounts = mount_voice_tokens(Arc::clone(inner) as Arc<dyn VoiceTokens>);
    mounts.extend(mount_run_reader(Arc::clone(inner) as Arc<dyn RunReader>));
    mounts.extend(mount_session_reader(Arc::clone(inner) as Arc<dyn SessionReader>));
    mounts
}

impl Peers {
    /// Adds a run to orchestrator.
    pub fn add_run(&self, owner: UserId, run: RunBrief, tasks: Vec<TaskBrief>) {
        lock(&self.inner.work.runs).push((owner.to_string(), run, tasks));
    }

    /// Adds a session to session-store.
    pub fn add_session(&self, owner: UserId, session: SessionBrief) {
        lock(&self.inner.work.sessions).push((owner.to_string(), session));
    }

    pub fn session_store_away(&self, away: bool) {
        self.inner.work.session_store_away.store(away, SeqCst);
    }
}

impl VoiceTokens for Inner {
    fn mint(&self, request: MintVoiceTokenRequest) -> BoxFuture<'_, Result<MintVoiceTokenResponse, RpcError>> {
        Box::pin(async move {
            here(&self.identity_away)?;
            let malformed = || RpcError::Invalid("an id is malformed".to_owned());
            if !lock(&self.users).contains(&request.user_id) {
                return Err(RpcError::NotFound(request.user_id));
            }
            let user = request.user_id.parse().map_err(|_| malformed())?;
            let voice_session = request.voice_session_id.parse().map_err(|_| malformed())?;
            let until = Timestamp::from_micros(request.expires_at);
            let claims = VoiceToolClaims::new(user, voice_session, Clock::system().now(), until);
            Ok(MintVoiceTokenResponse { token: self.issuer.voice_tools(&claims) })
        })
    }
}

impl RunReader for Inner {
    fn list(&self, request: ListRunsRequest) -> BoxFuture<'_, Result<ListRunsResponse, RpcError>> {
        Box::pin(async move {
            here(&self.orchestrator_away)?;
            let all = lock(&self.work.runs);
            let wanted = |run: &RunBrief| !request.active_only || run.finished_at == 0;
            let mut runs: Vec<RunBrief> = all
                .iter()
                .filter(|(owner, run, _)| *owner == request.user_id && wanted(run))
                .map(|(_, run, _)| run.clone())
                .collect();
            let limit = usize::try_from(request.limit).unwrap_or(0);
            let more = runs.len() > limit;
            runs.truncate(limit);
            Ok(ListRunsResponse { runs, more })
        })
    }

    fn show(&self, request: ShowRunRequest) -> BoxFuture<'_, Result<ShowRunResponse, RpcError>> {
        Box::pin(async move {
            here(&self.orchestrator_away)?;
            let all = lock(&self.work.runs);
            let is_meant = |run: &RunBrief| run.id == request.run || run.r#ref == request.run;
            let found = all.iter().find(|(owner, run, _)| *owner == request.user_id && is_meant(run));
            let (_, run, tasks) = found.ok_or_else(|| RpcError::NotFound(request.run.clone()))?;
            Ok(ShowRunResponse { run: Some(run.clone()), tasks: tasks.clone(), more: false })
        })
    }
}

impl SessionReader for Inner {
    fn list(&self, request: ListSessionsRequest) -> BoxFuture<'_, Result<ListSessionsResponse, RpcError>> {
        Box::pin(async move {
            here(&self.work.session_store_away)?;
            let all = lock(&self.work.sessions);
            let wanted = |session: &SessionBrief| !request.active_only || session.status == "active";
            let mut sessions: Vec<SessionBrief> = all
                .iter()
                .filter(|(owner, session)| *owner == request.user_id && wanted(session))
                .map(|(_, session)| session.clone())
                .collect();
            let limit = usize::try_from(request.limit).unwrap_or(0);
            let more = sessions.len() > limit;
            sessions.truncate(limit);
            Ok(ListSessionsResponse { sessions, more })
        })
    }
}
