//! A test double of LiveKit's server API: Twirp endpoints that check the token's grants, participants and agents, signed
//! webhooks, and faults on demand.
//!
//! It behaves like livekit-server 1.13 where a client can see it: an unknown room has an empty list of participants, a room
//! that is created twice is returned without a second agent, a wrong secret is answered with a plain 401 that contains the
//! token, a dispatch without a worker is dropped, and tokens cannot be revoked.

mod agents;
mod faults;
mod server;
mod state;
mod webhooks;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

pub use agents::{AgentPlan, Ready, Received, Rpc, Via};
pub use faults::{Fault, WebhookFaults};
use livekit_api::access_token::TokenVerifier;
pub use state::{JoinError, Leave, RoomView};

use crate::livekit::state::Inner;

/// The key pair that the double accepts.
pub const API_KEY: &str = "APIdouble";
pub const API_SECRET: &str = "a-secret-of-the-double-0123456789abcdef";

/// A running double. It stops with its runtime.
#[derive(Clone)]
pub struct Double {
    inner: Arc<Inner>,
    addr: SocketAddr,
}

impl Double {
    /// Serves on a free port of this machine.
    pub fn start() -> std::io::Result<Self> {
        // The process has one provider; another test may have installed it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let addr = listener.local_addr()?;
        let inner = Arc::new(Inner::new(tokio::runtime::Handle::current()));
        server::serve(listener, Arc::clone(&inner))?;
        state::close_idle_rooms(Arc::clone(&inner));
        Ok(Self { inner, addr })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Sets the address for webhooks.
    pub fn send_webhooks_to(&self, url: impl Into<String>) {
        self.inner.webhooks.send_to(url.into());
    }

    /// Sets how webhooks are disturbed.
    pub fn set_webhook_faults(&self, faults: WebhookFaults) {
        self.inner.webhooks.set_faults(faults);
    }

    /// Signs and sends a webhook with this body; gives the status.
    pub async fn send_raw_webhook(&self, body: &str) -> u16 {
        self.inner.webhooks.send_raw(body, API_KEY, API_SECRET).await
    }

    /// Sets how agents behave that are dispatched from now on.
    pub fn plan_agents(&self, plan: AgentPlan) {
        self.inner.change(|state| state.plan = plan);
    }

    /// Makes the next `times` calls of `method` fail (`"*"`: of any method).
    pub fn fail_next(&self, method: &str, fault: Fault, times: usize) {
        self.inner.faults.next(method, fault, times);
    }

    /// Makes every call fail with this probability, in one of these ways. The same seed gives the same choices.
    pub fn fail_randomly(&self, likelihood: f64, faults: Vec<Fault>, seed: u64) {
        self.inner.faults.randomly(likelihood, faults, seed);
    }

    /// Lets go what is held, now and from now on: agents in front of their rooms, and calls.
    pub fn release(&self) {
        self.inner.release();
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.inner.faults.clear();
        self.inner.webhooks.set_faults(WebhookFaults::default());
    }

    /// A person joins with the token of `start`. Returns the identity.
    pub fn join(&self, token: &str) -> Result<String, JoinError> {
        let claims = TokenVerifier::with_api_key(API_KEY, API_SECRET).verify(token).map_err(|_| JoinError::BadToken)?;
        self.inner.join_human(&claims)
    }

    /// A participant leaves or is lost.
    pub fn leave(&self, room: &str, identity: &str, how: Leave) {
        self.inner.leave(room, identity, how);
    }

    /// Disconnects the room's agents.
    pub fn kill_agents(&self, room: &str) {
        self.inner.kill_agents(room);
    }

    /// The room's agents die, and the server does not notice.
    pub fn silence_agents(&self, room: &str) {
        self.inner.silence_agents(room);
    }

    /// Closes a room without a request of the gateway.
    pub fn close_room(&self, room: &str) {
        self.inner.delete_room(room);
    }

    /// Creates a room without the gateway.
    pub fn open_stray_room(&self, name: &str) {
        self.inner.create_room(name, Duration::from_secs(300), Duration::from_secs(20), Vec::new());
    }

    pub fn rooms(&self) -> Vec<RoomView> {
        self.inner.views()
    }

    pub fn room(&self, name: &str) -> Option<RoomView> {
        self.rooms().into_iter().find(|room| room.name == name)
    }

    /// How many rooms of this name were ever created.
    pub fn times_created(&self, name: &str) -> usize {
        self.inner.read(|state| state.created.iter().filter(|created| *created == name).count())
    }

    /// The names of all rooms that were ever created, in order.
    pub fn created_rooms(&self) -> Vec<String> {
        self.inner.read(|state| state.created.clone())
    }

    /// How many agents were ever dispatched to this room.
    pub fn dispatches(&self, room: &str) -> usize {
        self.inner.read(|state| state.dispatched.iter().filter(|to| *to == room).count())
    }

    /// What the agents of this room received, also after it was deleted.
    pub fn received(&self, room: &str) -> Vec<Received> {
        self.inner.read(|state| state.received.iter().filter(|received| received.room == room).cloned().collect())
    }

    /// The texts that the agents of this room received, without repetitions, in order of their first arrival.
    pub fn texts(&self, room: &str) -> Vec<String> {
        agents::texts(&self.received(room))
    }

    /// The metadata of the last dispatch to this room.
    pub fn dispatch_metadata(&self, room: &str) -> Option<String> {
        self.inner.read(|state| state.metadata.get(room).cloned())
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> usize {
        self.inner.read(|state| state.calls.get(method).copied().unwrap_or(0))
    }

    /// How long the double itself took to answer CreateRoom for this room, the last time.
    pub fn took(&self, room: &str) -> Option<Duration> {
        self.inner.read(|state| state.took.get(room).copied())
    }
}
