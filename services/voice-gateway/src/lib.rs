//! voice-gateway: rooms in which a person talks to the agent of their coding session.
//!
//! It promises: a session that says active is active; a text is never lost silently; no room is left behind; nothing secret
//! goes to an address that a caller named. The database knows what should be, LiveKit knows what is; webhooks and a
//! reconciler bring the two together, and any replica serves any call.

mod domain;

mod clients;
mod handlers;
mod operations;
mod routes;
mod store;
mod workers;

mod config;
mod error;
mod metrics;
mod rates;

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::{Clock, Drain, Gate, KeySource, Routes, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::identity::KeysClient;
use ensemble_rpc::{Channel, RemoteKeys};
use ensemble_store_kit::{Db, Migrations, migrations};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::VoiceDelivery;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::clients::livekit::{ApiKey, Breaker, LiveKit, Twirp, WebhookKeys};
use crate::clients::tool_bridge::ToolBridgeKey;
pub use crate::config::VoiceConfig;
use crate::config::{DeliveryConfig, RoomConfig, UpkeepConfig};
use crate::domain::limits::Limits;
use crate::domain::tool_bridge::AllowedOrigins;
use crate::error::Error;
use crate::handlers::caller::VoiceKeys;
use crate::metrics::VoiceMetrics;
use crate::operations::deliver::RpcSupport;
use crate::rates::Rates;
use crate::store::{Nudges, Store};
use crate::workers::Births;

/// A running voice gateway. Cheap to clone.
#[derive(Clone)]
pub struct VoiceGateway {
    store: Store,
    livekit: Arc<LiveKit>,
    livekit_key: ApiKey,
    livekit_ws_url: String,
    webhook_keys: Arc<WebhookKeys>,
    rpc_support: Arc<RpcSupport>,
    voice_keys: Arc<VoiceKeys>,
    require_user: bool,
    rates: Arc<Rates>,
    limits: Limits,
    rooms: RoomConfig,
    delivery: DeliveryConfig,
    upkeep: UpkeepConfig,
    tool_bridge_origins: AllowedOrigins,
    tool_bridge_default: Option<String>,
    tool_bridge_key: Option<ToolBridgeKey>,
    /// Where agents reach us, without a slash at the end.
    public_url: String,
    births: Births,
    metrics: VoiceMetrics,
    clock: Clock,
    drain: Drain,
    keys: Arc<RemoteKeys>,
}

/// The migrations of this service, for its tests and for tools.
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

    async fn build(config: VoiceConfig, context: ServiceContext) -> Result<(Self, Vec<Worker>), StartError> {
        config.warn();
        let metrics = VoiceMetrics::new(context.metrics.registry())?;
        let db = Db::open(&config.database, migrations()).await?;
        db.register(context.metrics.registry())?;
        let (nudges, deliveries) = Nudges::new();
        let (births, born) = Births::new();
        let rates = Arc::new(Rates::new(config.rates));
        let livekit = config.livekit;
        let breaker = Breaker::new(livekit.breaker_failures, livekit.breaker_probe);
        let twirp = Twirp::new(context.http.clone(), &livekit.url, livekit.key.clone(), breaker, metrics.clone());
        let identity = Arc::new(KeysClient::new(Channel::new(&context, &config.identity)));
        let keys = RemoteKeys::start(identity, config.keys).await;
        keys.register(&context.metrics)?;
        let public_url = config.public_url.unwrap_or_else(|| format!("http://{}", context.public_addr));
        let service = Self {
            store: Store::start(db, config.rules, nudges, metrics.clone())?,
            livekit: Arc::new(LiveKit::new(twirp, livekit.budgets)),
            livekit_key: livekit.key,
            livekit_ws_url: livekit.ws_url,
            webhook_keys: Arc::new(WebhookKeys::new(&livekit.webhook_keys)),
            rpc_support: Arc::default(),
            voice_keys: Arc::new(VoiceKeys::new(&config.voice_keys, Arc::clone(&rates))),
            require_user: config.require_user,
            rates,
            limits: config.limits,
            rooms: config.rooms,
            delivery: config.delivery,
            upkeep: config.upkeep,
            tool_bridge_origins: config.tool_bridge.origins,
            tool_bridge_default: config.tool_bridge.default_url,
            tool_bridge_key: config.tool_bridge.key.map(ToolBridgeKey),
            public_url: public_url.trim_end_matches('/').to_owned(),
            births,
            metrics,
            clock: context.clock,
            drain: context.drain,
            keys,
        };
        let workers = service.workers(deliveries, born);
        Ok((service, workers))
    }

    async fn migrate(config: VoiceConfig) -> Result<(), StartError> {
        Db::open(&config.database, migrations()).await?;
        Ok(())
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }

    fn gate(&self) -> Option<Arc<dyn Gate>> {
        Some(Arc::clone(&self.voice_keys) as Arc<dyn Gate>)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.store.ready().await?;
            if self.livekit.key_is_good() { Ok(()) } else { Err("LiveKit refuses our API key".to_owned()) }
        })
    }
}

impl VoiceGateway {
    fn workers(&self, deliveries: mpsc::Receiver<GatewaySessionId>, births: mpsc::Receiver<String>) -> Vec<Worker> {
        let shared = Arc::new(self.clone());
        let (this, drain) = (|| Arc::clone(&shared), || self.drain.clone());
        let mut loops = vec![
            Worker::new("timers", workers::run_timers(this(), drain())),
            Worker::new("pump", workers::pump(this(), deliveries, drain())),
            Worker::new("reaper", workers::reap(this(), births, drain())),
            Worker::new("prober", workers::probe(this(), drain())),
            Worker::new("upkeep", workers::keep_up(this(), drain())),
        ];
        if !self.livekit_key.key.is_empty() {
            loops.push(Worker::new("reconciler", workers::reconcile(this(), drain())));
        }
        loops
    }

    /// Waits a moment for the agent to take a text.
    async fn await_text(&self, id: GatewaySessionId, seq: i64) -> Result<VoiceDelivery, Error> {
        let mut news = self.store.notifier().subscribe(store::topic(id));
        let deadline = self.delivery_deadline();
        loop {
            let delivery = self.store.text_delivery(id, seq).await?;
            if delivery != VoiceDelivery::Queued || timeout_at(deadline, news.changed()).await.is_err() {
                return Ok(delivery);
            }
        }
    }

    /// Waits a moment for the agent to take this version of the context, or a newer one.
    async fn await_context(&self, id: GatewaySessionId, version: i64) -> Result<VoiceDelivery, Error> {
        let mut news = self.store.notifier().subscribe(store::topic(id));
        let deadline = self.delivery_deadline();
        loop {
            let Some(found) = self.store.find(id).await? else { return Err(Error::Unknown("accepted")) };
            let marks = &found.session.context;
            let so_far = if marks.delivered >= version {
                return Ok(VoiceDelivery::Delivered);
            } else if marks.sent >= version {
                VoiceDelivery::Sent
            } else {
                VoiceDelivery::Queued
            };
            if found.session.is_over() || timeout_at(deadline, news.changed()).await.is_err() {
                return Ok(so_far);
            }
        }
    }

    fn delivery_deadline(&self) -> Instant {
        Instant::now() + self.delivery.timeout.min(Duration::from_secs(60))
    }
}
