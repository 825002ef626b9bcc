//! The `migrate` command brings the database of every service up to date, also where `MIGRATE=check` is set, as it is for the
//! replicas of a cluster; after it, replicas with that setting start.

use std::os::unix::fs::PermissionsExt;

use ensemble_chassis::{Clock, Listeners, Service, StartError, Vars, start};
use ensemble_identity::Identity;
use ensemble_machine_registry::MachineRegistry;
use ensemble_orchestrator::Orchestrator;
use ensemble_session_store::SessionStore;
use ensemble_testkit::{Backend, TestDatabase, on_both_databases};
use ensemble_voice_gateway::VoiceGateway;

/// What the services need to start, with peers that do not answer.
fn vars(database: &TestDatabase) -> Vars {
    let key = database.folder.path().join("key");
    if !key.exists() {
        std::fs::write(&key, [7; 32]).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o400)).unwrap();
    }
    let (key, url) = (key.display().to_string(), database.url.clone());
    let away = "http://127.0.0.1:9";
    Vars::from_pairs([
        ("MIGRATE", "check"),
        ("DATABASE_URL", url.as_str()),
        ("DATABASE_TIMEOUT_MS", "60000"),
        ("DATABASE_POOL_WAIT_MS", "60000"),
        ("INTERNAL_TOKEN", "secret"),
        ("KEY_ENCRYPTION_KEY_FILE", key.as_str()),
        ("PUBLIC_BASE_URL", "http://localhost:8080"),
        ("IDENTITY_RPC_URL", away),
        ("MACHINE_REGISTRY_RPC_URL", away),
        ("ORCHESTRATOR_RPC_URL", away),
        ("DRAIN_DELAY_MS", "0"),
        ("WORKERS", "1"),
    ])
}

async fn starts<S: Service>(database: &TestDatabase) -> Result<(), StartError> {
    let running = start::<S>(vars(database), Listeners::loopback()?, Clock::system()).await?;
    running.stop().await;
    Ok(())
}

async fn migrates<S: Service>(on: Backend) {
    let database = TestDatabase::empty(on).await;
    let refused = starts::<S>(&database).await.expect_err("a schema that is behind is refused");
    assert!(format!("{refused:#}").contains("migrate"), "{}: {refused:#}", S::NAME);
    let config = S::configure(&mut vars(&database));
    S::migrate(config).await.unwrap_or_else(|error| panic!("{} does not migrate: {error:#}", S::NAME));
    starts::<S>(&database).await.unwrap_or_else(|error| panic!("{} does not start: {error:#}", S::NAME));
}

on_both_databases! {
    async fn identity(on: Backend) {
        migrates::<Identity>(on).await;
    }

    async fn machine_registry(on: Backend) {
        migrates::<MachineRegistry>(on).await;
    }

    async fn session_store(on: Backend) {
        migrates::<SessionStore>(on).await;
    }

    async fn orchestrator(on: Backend) {
        migrates::<Orchestrator>(on).await;
    }

    async fn voice_gateway(on: Backend) {
        migrates::<VoiceGateway>(on).await;
    }
}
