//! voice-gateway: rooms in which a person talks to the agent of their coding session.
//!
//! It promises: a session whose state is active is active; a text is never lost silently; no room is left behind; no secret
//! is sent to an address that the operator did not allow. The database holds the intended state and LiveKit the actual one.
//! Webhooks and a reconciler bring the two together, and any replica can serve any request.

mod domain;

mod clients;
mod handlers;
mod operations;
mod routes;
mod store;
mod workers;

mod absence;
mod config;
mod error;
mod metrics;
mod queues;
mod rates;

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::http::turns_of_callers;
use ensemble_chassis::outward::Outward;
use ensemble_chassis::{Clock, Drain, Gate, KeySource, Routes, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::RemoteKeys;
use ensemble_store_kit::{Db, Migrations, Retention, migrations};
use futures_util::future::BoxFuture;

use crate::absence::Absences;
use crate::clients::directory::Directory;
use crate::clients::livekit::{ApiKey, Breaker, LiveKit, Twirp, WebhookKeys};
use crate::clients::tool_bridge::ToolBridgeKey;
pub use crate::config::VoiceConfig;
use crate::config::{DeliveryConfig, RoomConfig, TimingConfig};
use crate::domain::endpoint::Endpoints;
use crate::domain::limits::Limits;
use crate::domain::state::Rules;
use crate::domain::tool_bridge::AllowedOrigins;
use crate::handlers::caller::VoiceKeys;
use crate::metrics::VoiceMetrics;
use crate::operations::deliveries::RpcSupport;
use crate::queues::{Receivers, StartedRooms, Wakeups, queues};
use crate::rates::Rates;

/// A running voice gateway.
pub struct VoiceGateway {
    db: Db,
    rules: Rules,
    wakeups: Wakeups,
    started_rooms: StartedRooms,
    livekit: LiveKit,
    livekit_key: ApiKey,
    livekit_ws_url: String,
    webhook_keys: WebhookKeys,
    rpc_support: RpcSupport,
    absences: Absences,
    voice_keys: Arc<VoiceKeys>,
    require_user: bool,
    rates: Arc<Rates>,
    limits: Limits,
    rooms: RoomConfig,
    delivery: DeliveryConfig,
    timing: TimingConfig,
    webhooks: Webhooks,
    tool_bridge_origins: AllowedOrigins,
    tool_bridge_default: Option<String>,
    tool_bridge_key: Option<ToolBridgeKey>,
    /// Where agents reach us, without a slash at the end.
    public_url: String,
    directory: Directory,
    metrics: VoiceMetrics,
    retention: Retention,
    clock: Clock,
    drain: Drain,
    keys: Arc<RemoteKeys>,
}

/// The endpoints that receive events of sessions, and the limits for deliveries to them.
struct Webhooks {
    endpoints: Endpoints,
    outward: Outward,
    timeout: Duration,
    first_wait: Duration,
}

/// The migrations of this service, for its tests.
pub fn migrations() -> Migrations {
    migrations!()
}

impl Service for VoiceGateway {
    const NAME: &'static str = "voice-gateway";
    const DEFAULT_PORT: u16 = 8085;
    type Config = VoiceConfig;

    fn configure(vars: &mut Vars) -> VoiceConfig {
        VoiceConfig::read(vars)
    }

    fn routes() -> Routes {
        routes::table()
    }

    async fn build(config: VoiceConfig, context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        config.warn();
        let metrics = VoiceMetrics::new(&context.metrics)?;
        let db =
            Db::open_measured(&config.database, migrations(), context.metrics.registry(), turns_of_callers).await?;
        let (wakeups, started_rooms, receivers) = queues();
        let rates = Arc::new(Rates::new(config.rates));
        let livekit = config.livekit;
        let voice_keys = VoiceKeys::new(&config.voice_keys, &livekit.key.secret, Arc::clone(&rates));
        let breaker = Breaker::new(livekit.breaker_failures, livekit.breaker_probe);
        let twirp = Twirp::new(context.http.clone(), &livekit.url, livekit.key.clone(), breaker, metrics.clone());
        let keys = RemoteKeys::start(&context, &config.peers.identity, config.keys).await?;
        let webhooks = config.webhooks;
        let webhooks = Webhooks {
            endpoints: webhooks.endpoints,
            outward: Outward::new(webhooks.trusted, webhooks.timeout)?,
            timeout: webhooks.timeout,
            first_wait: webhooks.first_wait,
        };
        let public_url = config.public_url.unwrap_or_else(|| format!("http://{}", context.public_addr));
        let service = Arc::new(Self {
            db,
            rules: config.rules,
            wakeups,
            started_rooms,
            livekit: LiveKit::new(twirp, livekit.budgets),
            livekit_key: livekit.key,
            livekit_ws_url: livekit.ws_url,
            webhook_keys: WebhookKeys::new(&livekit.webhook_keys),
            rpc_support: RpcSupport::default(),
            absences: Absences::default(),
            voice_keys: Arc::new(voice_keys),
            require_user: config.require_user,
            rates,
            limits: config.limits,
            rooms: config.rooms,
            delivery: config.delivery,
            timing: config.timing,
            webhooks,
            tool_bridge_origins: config.tool_bridge.origins,
            tool_bridge_default: config.tool_bridge.default_url,
            tool_bridge_key: config.tool_bridge.key.map(ToolBridgeKey),
            public_url: public_url.trim_end_matches('/').to_owned(),
            directory: Directory::new(&context, &config.peers),
            metrics,
            retention: Retention::new(context.metrics.registry())?,
            clock: context.clock,
            drain: context.drain,
            keys,
        });
        let workers = loops(&service, receivers);
        Ok((service, workers))
    }

    async fn migrate(config: VoiceConfig) -> Result<(), StartError> {
        Ok(Db::migrate(&config.database, migrations()).await?)
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }

    fn gate(&self) -> Option<Arc<dyn Gate>> {
        Some(Arc::clone(&self.voice_keys) as Arc<dyn Gate>)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.db.ready().await?;
            if self.livekit.key_is_good() { Ok(()) } else { Err("LiveKit refuses our API key".to_owned()) }
        })
    }
}

fn loops(service: &Arc<VoiceGateway>, receivers: Receivers) -> Vec<Worker> {
    let (this, drain) = (|| Arc::clone(service), || service.drain.clone());
    let Receivers { deliveries, started_rooms } = receivers;
    let mut loops = vec![
        Worker::new("timers", workers::timers::run(this(), drain())),
        Worker::new("delivery", workers::delivery::run(this(), deliveries, drain())),
        Worker::new("orphan-room-cleaner", workers::orphan_room_cleaner::run(this(), started_rooms, drain())),
        Worker::new("prober", workers::prober::run(this(), drain())),
        Worker::new("revocations", workers::revocations::run(this(), drain())),
        Worker::new("maintenance", workers::maintenance::run(this(), drain())),
        Worker::new("stored", workers::maintenance::measure(this(), drain())),
    ];
    if !service.webhooks.endpoints.is_empty() {
        loops.push(Worker::new("webhook-senders", workers::webhook_senders::run(this(), drain())));
    }
    if !service.livekit_key.key.is_empty() {
        loops.push(Worker::new("reconciler", workers::reconciler::run(this(), drain())));
    }
    loops
}
