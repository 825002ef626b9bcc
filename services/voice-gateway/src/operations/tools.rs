//! The agent's tools of the server: they read for the user of one voice session while it is open, and change nothing.

use std::sync::Arc;

use ensemble_chassis::KeySource;
use ensemble_chassis::auth::VoiceToolClaims;
use ensemble_types::voice_tools::{VoiceToolRunDetail, VoiceToolRuns, VoiceToolSessions};

use crate::VoiceGateway;
use crate::domain::tool_call::{MOST_CALLS, Recorded, ToolCall};
use crate::error::Error;
use crate::store::tool_calls;

impl VoiceGateway {
    /// The user's newest runs.
    pub(crate) async fn tool_runs(
        &self,
        caller: &VoiceToolClaims,
        active_only: bool,
        limit: u32,
    ) -> Result<VoiceToolRuns, Error> {
        let recorded = self.record_tool_call(caller, ToolCall::Runs { active_only, limit }).await?;
        Ok(self.directory.runs(recorded.user, active_only, limit).await?)
    }

    /// One run of the user.
    pub(crate) async fn tool_run(&self, caller: &VoiceToolClaims, call: ToolCall) -> Result<VoiceToolRunDetail, Error> {
        let run = call.subject().unwrap_or_default();
        let recorded = self.record_tool_call(caller, call).await?;
        Ok(self.directory.run(recorded.user, run).await?)
    }

    /// The user's sessions.
    pub(crate) async fn tool_sessions(
        &self,
        caller: &VoiceToolClaims,
        active_only: bool,
        limit: u32,
    ) -> Result<VoiceToolSessions, Error> {
        let recorded = self.record_tool_call(caller, ToolCall::Sessions { active_only, limit }).await?;
        Ok(self.directory.sessions(recorded.user, active_only, limit).await?)
    }

    /// Records the call in its voice session, if that is still open.
    async fn record_tool_call(&self, caller: &VoiceToolClaims, call: ToolCall) -> Result<Recorded, Error> {
        let (id, user) = (caller.voice_session, caller.sub);
        // A token of a session that is unknown, over, another user's, or of a device that was removed: a limit would tell that the session exists.
        let name = call.name();
        let (rates, keys) = (Arc::clone(&self.rates), self.keys.current().map_err(|_| Error::Unauthenticated)?);
        let change = self
            .change("record a tool call", id, move |tx, stored, now| {
                if !stored.session.may_read_for(user, &keys) {
                    return Err(Error::Unauthenticated);
                }
                rates.tool_call(id).map_err(|retry_after| Error::TooMany {
                    counted: "tool calls of this voice session",
                    retry_after,
                })?;
                if stored.session.tool_calls >= MOST_CALLS {
                    return Err(Error::ToolCallsUsedUp);
                }
                stored.session.tool_calls += 1;
                tool_calls::insert(tx, id, stored.session.tool_calls, call.name(), call.subject().as_deref(), now)?;
                Ok(())
            })
            .await?;
        change.ok_or(Error::Unauthenticated)?;
        self.metrics.tool_call(name);
        Ok(Recorded { user })
    }
}
