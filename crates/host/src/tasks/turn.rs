//! The turn of a task in its session: the reporter of the task gives the session orders, and follows its progress.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_agent::McpServer;
use ensemble_protocol::transcript::body::AccessGrant;
use ensemble_types::ids::SessionId;
use tokio::sync::{mpsc, oneshot, watch};

use crate::core::{Core, TaskState};

/// A session takes an order when it has written its last step to disk.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// What a session is to do for its task.
#[derive(Debug)]
pub(crate) enum Order {
    /// Have the agent do this, and say when that is on disk.
    Do { prompt_id: String, text: String, taken: oneshot::Sender<()> },
    /// Interrupt the turn of the prompt with this id.
    Cancel(String),
    /// Have the agent use these MCP servers, and say when that is on disk.
    McpServers { servers: Vec<McpServer>, taken: oneshot::Sender<()> },
}

impl Order {
    /// Gives it to the session. Returns the channel to notify when it is on disk.
    pub(crate) fn give(self, core: &mut Core) -> Option<oneshot::Sender<()>> {
        match self {
            Self::Do { prompt_id, text, taken } => {
                core.task(prompt_id, text);
                Some(taken)
            }
            Self::McpServers { servers, taken } => {
                core.set_servers(servers);
                Some(taken)
            }
            Self::Cancel(prompt_id) => {
                core.cancel_task(&prompt_id);
                None
            }
        }
    }
}

/// The state of a session's task, with the id of its prompt.
pub(crate) type Progress = Option<(String, TaskState)>;

/// The sessions that are hosted now.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<SessionId, Orders>>);

#[derive(Clone)]
struct Orders {
    orders: mpsc::Sender<Order>,
    progress: watch::Receiver<Progress>,
    grants: watch::Receiver<Vec<AccessGrant>>,
}

/// The session's own ends.
pub(crate) struct Ends {
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) progress: watch::Sender<Progress>,
}

/// A task that its session does.
pub struct TaskTurn {
    prompt_id: String,
    session: Orders,
}

impl Sessions {
    /// A session is hosted from now on.
    pub(crate) fn add(&self, session: SessionId, grants: watch::Receiver<Vec<AccessGrant>>) -> Ends {
        let (order, orders) = mpsc::channel(4);
        let (progress, seen) = watch::channel(None);
        self.lock().insert(session, Orders { orders: order, progress: seen, grants });
        Ends { orders, progress }
    }

    /// It is not hosted any more, unless another one was added after it.
    pub(crate) fn remove(&self, session: SessionId, ends: &Ends) {
        let is_it = |known: &mut Orders| known.progress.same_channel(&ends.progress.subscribe());
        let mut sessions = self.lock();
        if sessions.get_mut(&session).is_some_and(is_it) {
            sessions.remove(&session);
        }
    }

    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.lock().contains_key(&session)
    }

    /// What people may command in a session. `None`: it is not hosted now.
    pub(crate) fn grants(&self, session: SessionId) -> Option<Vec<AccessGrant>> {
        self.lock().get(&session).map(|session| session.grants.borrow().clone())
    }

    /// Has a session do a prompt of its task. It is on disk when this returns.
    pub(crate) async fn begin(&self, session: SessionId, prompt_id: String, text: String) -> Result<TaskTurn, String> {
        let order = |taken| Order::Do { prompt_id: prompt_id.clone(), text, taken };
        let session = self.give(session, order).await?;
        Ok(TaskTurn { prompt_id, session })
    }

    /// Has the agent of a session use these MCP servers from its next start on. It is on disk when this returns.
    pub(crate) async fn keep_servers(&self, session: SessionId, servers: Vec<McpServer>) -> Result<(), String> {
        self.give(session, |taken| Order::McpServers { servers, taken }).await.map(drop)
    }

    async fn give(
        &self,
        session: SessionId,
        order: impl FnOnce(oneshot::Sender<()>) -> Order,
    ) -> Result<Orders, String> {
        let not_hosted = || "its session is not hosted now".to_owned();
        let session = self.lock().get(&session).cloned().ok_or_else(not_hosted)?;
        let (taken, is_taken) = oneshot::channel();
        let given = async {
            session.orders.send(order(taken)).await.map_err(|_| not_hosted())?;
            is_taken.await.map_err(|_| not_hosted())
        };
        match tokio::time::timeout(TAKEN_WITHIN, given).await {
            Ok(given) => given.map(|()| session),
            Err(_) => Err("its session does not answer".to_owned()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Orders>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskTurn {
    /// Its state now. `None`: the session is not hosted any more, or has another prompt of its task.
    pub fn state(&self) -> Option<TaskState> {
        let is_hosted = self.session.progress.has_changed().is_ok();
        let progress = self.session.progress.borrow();
        progress.as_ref().filter(|(id, _)| is_hosted && *id == self.prompt_id).map(|(_, state)| state.clone())
    }

    /// Waits until it may be further.
    pub async fn changed(&mut self) {
        // An error says that the session is not hosted any more, which the state says too.
        let _ = self.session.progress.changed().await;
    }

    /// Interrupts it. Its end is reported.
    pub async fn cancel(&self) {
        let order = Order::Cancel(self.prompt_id.clone());
        let _ = tokio::time::timeout(TAKEN_WITHIN, self.session.orders.send(order)).await;
    }
}
