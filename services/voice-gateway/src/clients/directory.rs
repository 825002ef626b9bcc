//! The other services, as far as the tools of an agent need them: identity for its token, orchestrator and session-store for what it
//! reads.

use std::sync::Arc;

use ensemble_chassis::ServiceContext;
use ensemble_rpc::identity::{MintVoiceTokenRequest, VoiceTokens, VoiceTokensClient};
use ensemble_rpc::orchestrator::{ListRunsRequest, RunBrief, RunReader, RunReaderClient, ShowRunRequest, TaskBrief};
use ensemble_rpc::sessions::{ListSessionsRequest, SessionBrief, SessionReader, SessionReaderClient};
use ensemble_rpc::{Channel, Peer, RpcError};
use ensemble_types::ids::UserId;
use ensemble_types::runs::RunSummary;
use ensemble_types::time::Timestamp;
use ensemble_types::voice_tools::{
    VoiceToolRun, VoiceToolRunDetail, VoiceToolRuns, VoiceToolSession, VoiceToolSessions, VoiceToolTask,
};

use crate::domain::session::VoiceSession;

#[derive(Clone)]
pub(crate) struct Directory {
    tokens: Arc<dyn VoiceTokens>,
    runs: Arc<dyn RunReader>,
    sessions: Arc<dyn SessionReader>,
}

/// The internal listeners that are called.
pub(crate) struct DirectoryPeers {
    pub(crate) identity: Peer,
    pub(crate) orchestrator: Peer,
    pub(crate) session_store: Peer,
}

impl Directory {
    pub(crate) fn new(context: &ServiceContext, peers: &DirectoryPeers) -> Self {
        Self {
            tokens: Arc::new(VoiceTokensClient::new(Channel::new(context, &peers.identity))),
            runs: Arc::new(RunReaderClient::new(Channel::new(context, &peers.orchestrator))),
            sessions: Arc::new(SessionReaderClient::new(Channel::new(context, &peers.session_store))),
        }
    }

    /// The token with which the session's agent calls its tools.
    pub(crate) async fn token(&self, session: &VoiceSession) -> Result<String, RpcError> {
        let request = MintVoiceTokenRequest {
            user_id: session.user_id.clone(),
            voice_session_id: session.id.to_string(),
            expires_at: session.expires_at.micros(),
        };
        Ok(self.tokens.mint(request).await?.token)
    }

    pub(crate) async fn runs(&self, user: UserId, active_only: bool, limit: u32) -> Result<VoiceToolRuns, RpcError> {
        let found = self.runs.list(ListRunsRequest { user_id: user.to_string(), limit, active_only }).await?;
        Ok(VoiceToolRuns { runs: found.runs.into_iter().map(run).collect(), more: found.more })
    }

    /// Not found: the user has no such run.
    pub(crate) async fn run(&self, user: UserId, id: String) -> Result<VoiceToolRunDetail, RpcError> {
        let found = self.runs.show(ShowRunRequest { user_id: user.to_string(), run: id }).await?;
        let brief = found.run.ok_or_else(|| RpcError::Internal("an answer without its run".to_owned()))?;
        Ok(VoiceToolRunDetail { run: run(brief), tasks: found.tasks.into_iter().map(task).collect(), more: found.more })
    }

    pub(crate) async fn sessions(
        &self,
        user: UserId,
        active_only: bool,
        limit: u32,
    ) -> Result<VoiceToolSessions, RpcError> {
        let found = self.sessions.list(ListSessionsRequest { user_id: user.to_string(), limit, active_only }).await?;
        Ok(VoiceToolSessions { sessions: found.sessions.into_iter().map(session).collect(), more: found.more })
    }
}

fn run(brief: RunBrief) -> VoiceToolRun {
    VoiceToolRun {
        id: brief.id,
        reference: brief.r#ref,
        title: said(brief.title),
        status: brief.status,
        summary: RunSummary {
            total: brief.total,
            queued: brief.queued,
            running: brief.running,
            completed: brief.completed,
            failed: brief.failed,
            cancelled: brief.cancelled,
        },
        created_at: Timestamp::from_micros(brief.created_at),
        finished_at: Some(brief.finished_at).filter(|at| *at != 0).map(Timestamp::from_micros),
    }
}

fn task(brief: TaskBrief) -> VoiceToolTask {
    VoiceToolTask {
        reference: brief.r#ref,
        task_key: said(brief.key),
        title: said(brief.title),
        status: brief.status,
        provider: brief.provider,
        attempt: brief.attempt,
        waiting_for: said(brief.waiting_for),
        waiting_reason: said(brief.waiting_reason),
        error_code: said(brief.error_code),
        error_message: said(brief.error_message),
        output_summary: said(brief.output_summary),
        sealed: brief.sealed,
    }
}

fn session(brief: SessionBrief) -> VoiceToolSession {
    VoiceToolSession {
        id: brief.id,
        reference: brief.r#ref,
        machine_id: said(brief.machine_id),
        status: brief.status,
        archived: brief.archived,
        online: brief.online,
        thinking: brief.thinking,
        attention: brief.attention,
        open: brief.open,
        updated_at: Timestamp::from_micros(brief.updated_at),
    }
}

/// An empty text stands for none.
fn said(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
