//! Accounts and credentials.
//!
//! This service promises: an account is a key pair, and only the holder of the key, or of a token that the key asked for,
//! acts for it; a sign-in cannot be repeated, nor passed on by another server; a revoked token is refused by every service
//! within seconds; a rotation of the signing keys has no effect that a client could notice.

mod routes;

mod handlers;
mod rpc;
mod workers;

mod operations;

mod clients;
mod domain;
mod first_account;
mod keys;
mod store;

mod config;
mod error;
mod metrics;

use std::sync::Arc;

use ensemble_chassis::http::turns_of_callers;
use ensemble_chassis::{Drain, KeySource, Routes, RpcMount, Service, ServiceContext, StartError, Vars, Worker};
use ensemble_rpc::HintSender;
use ensemble_rpc::identity::{mount_accounts, mount_keys, mount_pushes, mount_voice_tokens};
use ensemble_store_kit::{Db, Migrations, hints};
use futures_util::future::BoxFuture;

use crate::clients::PushServices;
use crate::config::{Config, Rules};
use crate::domain::Registration;
use crate::keys::{KeyRing, Vault};
use crate::metrics::IdentityMetrics;
use crate::operations::sign_in::OpenChallenges;
use crate::operations::{pushes, signing_keys};
use crate::workers::{Cleanup, FirstAccount, KeyRefresh, PushSender};

/// The service: what its handlers and workers share.
pub struct Identity {
    db: Db,
    ring: Arc<KeyRing>,
    rules: Rules,
    challenges: Arc<OpenChallenges>,
    metrics: IdentityMetrics,
    push_services: PushServices,
    drain: Drain,
}

/// The schema, for tests that make databases of it.
pub fn migrations() -> Migrations {
    ensemble_store_kit::migrations!()
}

/// `None`: there is an account.
async fn invite_first_user(db: &Db, vault: &Vault, config: &Config) -> Result<Option<FirstAccount>, StartError> {
    let origins = &config.rules.origins;
    // The first user may be on another computer.
    let public = origins.iter().find(|origin| !origin.is_loopback()).or(origins.first());
    let base = public.map(ToString::to_string).unwrap_or_default();
    let invited = FirstAccount::invited(db, base, &config.key_file, vault).await;
    invited.map_err(|error| anyhow::anyhow!("The first user cannot be invited: {error}"))
}

impl Service for Identity {
    const NAME: &'static str = "identity";
    const DEFAULT_PORT: u16 = 8081;
    type Config = Config;

    fn configure(vars: &mut Vars) -> Config {
        Config::read(vars)
    }

    fn routes() -> Routes {
        routes::table()
    }

    async fn build(config: Config, context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        let previous = config.previous_key_file.as_deref();
        let vault = Vault::read(&config.key_file, previous)
            .map_err(|error| anyhow::anyhow!("KEY_ENCRYPTION_KEY_FILE {}: {error}", config.key_file.display()))?;
        let db =
            Db::open_measured(&config.database, migrations(), context.metrics.registry(), turns_of_callers).await?;
        let ring = Arc::new(KeyRing::new(vault.clone(), config.schedule, config.keys_trusted_for));
        if vault.is_replaced() {
            signing_keys::reseal(&db, &vault).await?;
        }
        signing_keys::refresh(&db, &ring).await?;
        let challenges = Arc::<OpenChallenges>::default();
        let metrics = IdentityMetrics::new(&context.metrics, &ring, &challenges)?;
        let first_account = match config.rules.registration {
            Registration::Invited => invite_first_user(&db, &vault, &config).await?,
            _ => None,
        };
        let cleanup = Cleanup {
            db: db.clone(),
            challenges: Arc::clone(&challenges),
            first_account,
            every: config.sweep_every,
            drain: context.drain.clone(),
        };
        let key_refresh = KeyRefresh {
            db: db.clone(),
            ring: Arc::clone(&ring),
            every: config.ring_refresh,
            drain: context.drain.clone(),
        };
        let vapid = pushes::load_key(&db, &vault, config.push_contact).await?;
        let push_services = PushServices::new(vapid, config.push_trusted)?;
        let pushes = PushSender {
            db: db.clone(),
            services: push_services.clone(),
            metrics: metrics.clone(),
            clock: context.clock.clone(),
            drain: context.drain.clone(),
        };
        let (sender, drain) = (HintSender::new(&context, &config.session_store), context.drain.clone());
        let closing = async move { drain.closing().await };
        let hints = hints::forward(db.notifier().tap(), closing, move |given| sender.send(given));
        let workers = vec![
            Worker::new("key refresh", key_refresh.run()),
            Worker::new("cleanup", cleanup.run()),
            Worker::new("hints", hints),
            Worker::new("pushes", pushes.run()),
        ];
        let (rules, drain) = (config.rules, context.drain);
        Ok((Arc::new(Self { db, ring, rules, challenges, metrics, push_services, drain }), workers))
    }

    async fn migrate(config: Config) -> Result<(), StartError> {
        Ok(Db::migrate(&config.database, migrations()).await?)
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.ring) as Arc<dyn KeySource>
    }

    fn rpc(self: &Arc<Self>) -> Vec<RpcMount> {
        let server = Arc::new(rpc::RpcServer { db: self.db.clone(), ring: Arc::clone(&self.ring) });
        let mut mounts = mount_keys(Arc::clone(&server) as Arc<dyn ensemble_rpc::identity::Keys>);
        mounts.extend(mount_accounts(Arc::clone(&server) as Arc<dyn ensemble_rpc::identity::Accounts>));
        mounts.extend(mount_pushes(Arc::clone(&server) as Arc<dyn ensemble_rpc::identity::Pushes>));
        mounts.extend(mount_voice_tokens(server));
        mounts
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.db.ready())
    }
}
