//! LiveKit's server API, acted: Twirp endpoints that enforce the token's grants, agents and people that come and go, and
//! signed webhooks; with faults on demand, so that a test can have on one day what a service meets in a year.
//!
//! It keeps to what livekit-server 1.13 does where a client can tell: an unknown room lists as empty, a room that is made
//! twice comes back as it is without a second agent, a wrong secret is a 401 in plain text that repeats the token, a
//! dispatch without a worker is forgotten, and nothing revokes a token.

mod cast;
mod faults;
mod server;
mod webhooks;
mod world;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

pub use cast::{AgentPlan, Heard, Ready, Rpc, Via};
pub use faults::{Fault, WebhookFaults};
use livekit_api::access_token::TokenVerifier;
pub use world::{JoinError, Leave, RoomView};

use crate::world::Inner;

/// The key pair that the double knows.
pub const API_KEY: &str = "APIdouble";
pub const API_SECRET: &str = "a-secret-of-the-double-0123456789abcdef";

/// A running double. It ends with its runtime.
#[derive(Clone)]
pub struct Double {
    inner: Arc<Inner>,
    addr: SocketAddr,
}

impl Double {
    /// Serves on a free port of this machine.
    pub fn start() -> std::io::Result<Self> {
        // One provider for the whole process; whoever came first has installed it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let addr = listener.local_addr()?;
        let inner = Arc::new(Inner::new(tokio::runtime::Handle::current()));
        server::serve(listener, Arc::clone(&inner))?;
        world::close_idle_rooms(Arc::clone(&inner));
        Ok(Self { inner, addr })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where webhooks go from now on.
    pub fn send_webhooks_to(&self, url: impl Into<String>) {
        self.inner.webhooks.send_to(url.into());
    }

    /// What webhooks suffer from now on.
    pub fn disturb_webhooks(&self, faults: WebhookFaults) {
        self.inner.webhooks.disturb(faults);
    }

    /// Sends a webhook of a test's own making, signed.
    pub async fn send_raw_webhook(&self, body: &str) -> u16 {
        self.inner.webhooks.send_raw(body, API_KEY, API_SECRET).await
    }

    /// How agents behave that are dispatched from now on.
    pub fn plan_agents(&self, plan: AgentPlan) {
        self.inner.change(|world| world.plan = plan);
    }

    /// Lets the next `times` calls of `method` (`"*"`: of any) go wrong.
    pub fn fail_next(&self, method: &str, fault: Fault, times: usize) {
        self.inner.faults.next(method, fault, times);
    }

    /// Lets every call go wrong with this likelihood, in one of these ways. The same seed makes the same choices.
    pub fn fail_randomly(&self, likelihood: f64, faults: Vec<Fault>, seed: u64) {
        self.inner.faults.randomly(likelihood, faults, seed);
    }

    /// Everything goes well again.
    pub fn mend(&self) {
        self.inner.faults.mend();
        self.inner.webhooks.disturb(WebhookFaults::default());
    }

    /// A person enters with the token of `start`. Returns the identity.
    pub fn join(&self, token: &str) -> Result<String, JoinError> {
        let claims = TokenVerifier::with_api_key(API_KEY, API_SECRET).verify(token).map_err(|_| JoinError::BadToken)?;
        self.inner.join_human(&claims)
    }

    /// A participant leaves or is lost.
    pub fn leave(&self, room: &str, identity: &str, how: Leave) {
        self.inner.leave(room, identity, how);
    }

    /// The room's agents die.
    pub fn kill_agents(&self, room: &str) {
        self.inner.kill_agents(room);
    }

    /// The room goes, without anybody's wish.
    pub fn close_room(&self, room: &str) {
        self.inner.delete_room(room);
    }

    /// Makes a room behind the gateway's back.
    pub fn open_stray_room(&self, name: &str) {
        self.inner.create_room(name, Duration::from_secs(300), Duration::from_secs(20), Vec::new());
    }

    pub fn rooms(&self) -> Vec<RoomView> {
        self.inner.views()
    }

    pub fn room(&self, name: &str) -> Option<RoomView> {
        self.rooms().into_iter().find(|room| room.name == name)
    }

    /// How many rooms of this name were ever made.
    pub fn births(&self, name: &str) -> usize {
        self.inner.read(|world| world.births.iter().filter(|born| *born == name).count())
    }

    /// All rooms that were ever made.
    pub fn all_births(&self) -> usize {
        self.inner.read(|world| world.births.len())
    }

    /// How many agents were ever sent for, in this room.
    pub fn dispatches(&self, room: &str) -> usize {
        self.inner.read(|world| world.dispatched.iter().filter(|to| *to == room).count())
    }

    /// What the agents of this room heard, also after it is gone.
    pub fn heard(&self, room: &str) -> Vec<Heard> {
        self.inner.read(|world| world.heard.iter().filter(|heard| heard.room == room).cloned().collect())
    }

    /// The texts that the agents of this room took up, repetitions left out, in order of their first arrival.
    pub fn texts(&self, room: &str) -> Vec<String> {
        cast::texts(&self.heard(room))
    }

    /// The metadata of the last dispatch to this room.
    pub fn dispatch_metadata(&self, room: &str) -> Option<String> {
        self.inner.read(|world| world.metadata.get(room).cloned())
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> usize {
        self.inner.read(|world| world.calls.get(method).copied().unwrap_or(0))
    }

    /// How long the double itself took to answer CreateRoom for this room, the last time.
    pub fn took(&self, room: &str) -> Option<Duration> {
        self.inner.read(|world| world.took.get(room).copied())
    }
}
