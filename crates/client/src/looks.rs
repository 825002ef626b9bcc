//! Looks: what a device reads on a machine. Question and answer are sealed; see `ensemble_protocol::seal::look`.

use std::time::Duration;

use ensemble_types::ids::{LookId, MachineId, SessionId};
use ensemble_types::looks::{AnswerLook, AskLook, LookAnswer, LookAnswerTaken, LookAnswered, LookQuestion};

use crate::error::Result;
use crate::retry::Repeat;
use crate::transport::Client;

/// How long the service waits for the machine.
const HELD: Duration = Duration::from_secs(20);

impl Client {
    /// Asks the machine that hosts a session. 409 MACHINE_AWAY: it does not answer.
    pub async fn look_in_session(&self, session: SessionId, question: LookQuestion) -> Result<LookAnswer> {
        self.look(AskLook { session_id: Some(session), machine_id: None, question }).await
    }

    /// Asks a machine of the caller.
    pub async fn look_at_machine(&self, machine: MachineId, question: LookQuestion) -> Result<LookAnswer> {
        self.look(AskLook { session_id: None, machine_id: Some(machine), question }).await
    }

    async fn look(&self, question: AskLook) -> Result<LookAnswer> {
        // Repeated by the person, if at all: the machine counts each.
        let call = self.post(&["v1", "looks"], Repeat::Harmful).json(&question).waiting(HELD);
        Ok(call.send::<LookAnswered>().await?.answer)
    }

    /// Answers a look, as the machine that was asked. 404: it was answered, or its asker does not wait any more.
    pub async fn answer_look(&self, id: LookId, answer: LookAnswer) -> Result<()> {
        let call = self.post(&["v1", "looks", &id.to_string(), "answer"], Repeat::Harmful).json(&AnswerLook { answer });
        call.send::<LookAnswerTaken>().await.map(drop)
    }
}
