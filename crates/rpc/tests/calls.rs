//! Calls over the network: both sides of a contract, deadlines, repetitions, the token, and keys that expire.

#![cfg(test)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ensemble_chassis::auth::{DeviceKey, FixedKeys};
use ensemble_chassis::{
    Clock, KeySet, KeySource, Listeners, Routes, RpcMount, Running, Service, ServiceContext, StartError, Vars, Worker,
    start,
};
use ensemble_rpc::identity::{
    Accounts, AccountsClient, GetAccountRequest, GetAccountResponse, Keys, KeysClient, ListVersion,
    ListVersionsRequest, ListVersionsResponse, RevokeMachineTokensRequest, RevokeMachineTokensResponse,
    SnapshotRequest, SnapshotResponse, VerificationKey, mount_accounts, mount_keys,
};
use ensemble_rpc::{Channel, KeyRefresh, Peer, RemoteKeys, RpcError};
use ensemble_testkit::{eventually, in_time};
use ensemble_types::ids::TokenId;
use futures_util::future::BoxFuture;

/// For calls that get no answer.
const SHORT: Duration = Duration::from_millis(400);
const DEADLINE: Duration = ensemble_testkit::SOON;

/// How the peer behaves. The test changes it.
#[derive(Default)]
struct Script {
    calls: AtomicU32,
    /// The next calls get these results; all later calls succeed.
    failures: Mutex<Vec<RpcError>>,
    hangs: std::sync::atomic::AtomicBool,
    revoked: Mutex<Vec<TokenId>>,
}

impl Script {
    async fn step(&self) -> Result<(), RpcError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.failures.lock().unwrap().pop().map_or(Ok(()), Err)
    }
}

/// A device that is removed when the first token is revoked.
const REMOVED: DeviceKey = DeviceKey([9; 32]);

impl Keys for Script {
    fn snapshot(&self, request: SnapshotRequest) -> BoxFuture<'_, Result<SnapshotResponse, RpcError>> {
        Box::pin(async move {
            self.step().await?;
            let revoked = self.revoked.lock().unwrap();
            let version = format!("v{}", revoked.len());
            if version == request.known_version {
                return Ok(SnapshotResponse { version, unchanged: true, ..SnapshotResponse::default() });
            }
            let public = SigningKey::from_bytes(&[7; 32]).verifying_key();
            Ok(SnapshotResponse {
                version,
                unchanged: false,
                keys: vec![VerificationKey { key_id: "k1".to_owned(), public_key: public.as_bytes().to_vec() }],
                revoked_token_ids: revoked.iter().map(|id| id.uuid().as_bytes().to_vec()).collect(),
                removed_devices: revoked.iter().map(|_| REMOVED.0.to_vec()).collect(),
            })
        })
    }
}

impl Accounts for Script {
    fn get(&self, request: GetAccountRequest) -> BoxFuture<'_, Result<GetAccountResponse, RpcError>> {
        Box::pin(async move {
            self.step().await?;
            Ok(GetAccountResponse { user_id: request.user_id, created_at: 7 })
        })
    }

    fn list_versions(&self, request: ListVersionsRequest) -> BoxFuture<'_, Result<ListVersionsResponse, RpcError>> {
        Box::pin(async move {
            self.step().await?;
            let of = |user_id| ListVersion { user_id, version: 1 };
            Ok(ListVersionsResponse { versions: request.user_ids.into_iter().map(of).collect() })
        })
    }

    fn revoke_machine_tokens(
        &self,
        _: RevokeMachineTokensRequest,
    ) -> BoxFuture<'_, Result<RevokeMachineTokensResponse, RpcError>> {
        Box::pin(async move {
            self.step().await?;
            Ok(RevokeMachineTokensResponse { revoked: 1 })
        })
    }
}

/// A service that has only an internal listener.
struct ScriptedPeer(Arc<Script>);

static SCRIPTS: Mutex<Vec<Arc<Script>>> = Mutex::new(Vec::new());
static CONTEXTS: Mutex<Vec<ServiceContext>> = Mutex::new(Vec::new());

impl Service for ScriptedPeer {
    const NAME: &'static str = "peer-test";
    const DEFAULT_PORT: u16 = 1;
    type Config = usize;

    fn configure(vars: &mut Vars) -> usize {
        vars.parse("SCRIPT", "which script", 0)
    }

    fn routes() -> Routes {
        Routes::new()
    }

    async fn build(script: usize, context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        CONTEXTS.lock().unwrap().push(context);
        Ok((Arc::new(Self(Arc::clone(&SCRIPTS.lock().unwrap()[script]))), Vec::new()))
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::new(FixedKeys::new(KeySet::default()))
    }

    fn rpc(self: &Arc<Self>) -> Vec<RpcMount> {
        let mut mounts = mount_keys(Arc::clone(&self.0) as Arc<dyn Keys>);
        mounts.extend(mount_accounts(Arc::clone(&self.0) as Arc<dyn Accounts>));
        mounts
    }
}

/// A peer that is called with this deadline.
async fn peer(deadline: Duration) -> (Running, Arc<Script>, Channel) {
    let script = Arc::new(Script::default());
    let index = {
        let mut scripts = SCRIPTS.lock().unwrap();
        scripts.push(Arc::clone(&script));
        scripts.len() - 1
    };
    let vars = Vars::from_pairs([
        ("INTERNAL_TOKEN", "secret"),
        ("DRAIN_DELAY_MS", "0"),
        ("WORKERS", "1"),
        ("SCRIPT", &index.to_string()),
    ]);
    let running = start::<ScriptedPeer>(vars, Listeners::loopback().unwrap(), Clock::system()).await.unwrap();
    let context =
        CONTEXTS.lock().unwrap().iter().find(|context| context.internal_addr == running.internal_addr).unwrap().clone();
    let channel = Channel::new(&context, &Peer { url: running.internal_url(), deadline });
    (running, script, channel)
}

fn at(url: &str) -> Peer {
    Peer { url: url.to_owned(), deadline: DEADLINE }
}

fn get_account() -> GetAccountRequest {
    GetAccountRequest { user_id: "u".to_owned() }
}

#[tokio::test]
async fn every_kind_of_failure_crosses_the_wire() {
    let (running, script, channel) = peer(DEADLINE).await;
    let accounts = AccountsClient::new(channel);
    let answer = accounts.get(get_account()).await.unwrap();
    assert_eq!((answer.user_id.as_str(), answer.created_at), ("u", 7));
    for sent in
        [RpcError::NotFound("x".to_owned()), RpcError::Invalid("x".to_owned()), RpcError::Internal("x".to_owned())]
    {
        script.failures.lock().unwrap().push(sent.clone());
        let got = accounts.get(get_account()).await.unwrap_err();
        assert_eq!(std::mem::discriminant(&got), std::mem::discriminant(&sent), "{got}");
    }
    assert!(running.stop().await);
}

#[tokio::test]
async fn only_reads_are_repeated_and_only_once() {
    let (running, script, channel) = peer(DEADLINE).await;
    let accounts = AccountsClient::new(channel);
    let unavailable = || RpcError::Unavailable("unavailable".to_owned());
    script.failures.lock().unwrap().push(unavailable());
    assert!(accounts.get(get_account()).await.is_ok(), "the second attempt succeeds");
    assert_eq!(script.calls.swap(0, Ordering::SeqCst), 2);

    script.failures.lock().unwrap().extend([unavailable(), unavailable(), unavailable()]);
    assert!(matches!(accounts.get(get_account()).await, Err(RpcError::Unavailable(_))));
    assert_eq!(script.calls.swap(0, Ordering::SeqCst), 2);

    script.failures.lock().unwrap().clear();
    script.failures.lock().unwrap().push(unavailable());
    let write = accounts.revoke_machine_tokens(RevokeMachineTokensRequest::default()).await;
    assert!(matches!(write, Err(RpcError::Unavailable(_))));
    assert_eq!(script.calls.load(Ordering::SeqCst), 1);
    assert!(running.stop().await);
}

#[tokio::test]
async fn a_hanging_peer_ends_at_the_deadline_and_an_unreachable_one_at_once() {
    let (running, script, channel) = peer(SHORT).await;
    let accounts = AccountsClient::new(channel);
    script.hangs.store(true, Ordering::SeqCst);
    assert!(matches!(accounts.get(get_account()).await, Err(RpcError::Deadline(_))));
    assert_eq!(script.calls.load(Ordering::SeqCst), 1, "a call without a response is not repeated");
    let context =
        CONTEXTS.lock().unwrap().iter().find(|context| context.internal_addr == running.internal_addr).unwrap().clone();
    let unreachable = AccountsClient::new(Channel::new(&context, &at("http://127.0.0.1:9")));
    assert!(matches!(unreachable.get(get_account()).await, Err(RpcError::Unavailable(_))));
    let mut wrong_token = context;
    wrong_token.internal_token = "wrong".to_owned().into();
    script.hangs.store(false, Ordering::SeqCst);
    let refused = AccountsClient::new(Channel::new(&wrong_token, &at(&running.internal_url())));
    assert!(matches!(refused.get(get_account()).await, Err(RpcError::Internal(_))));
    assert_eq!(script.calls.load(Ordering::SeqCst), 1, "a call with a wrong token does not reach the contract");
    assert!(running.stop().await);
}

#[tokio::test]
async fn keys_follow_identity_and_stay_valid_for_a_while_without_it() {
    in_time(Duration::from_secs(10), follow_keys).await;
}

async fn follow_keys() {
    let (running, script, channel) = peer(SHORT).await;
    script.hangs.store(true, Ordering::SeqCst);
    let refresh = KeyRefresh { every: Duration::from_millis(20), trusted_for: Duration::from_millis(1_500) };
    let keys = RemoteKeys::follow(Arc::new(KeysClient::new(channel)), refresh).await;
    assert!(keys.current().is_err(), "there are no keys yet");
    script.hangs.store(false, Ordering::SeqCst);
    eventually(DEADLINE, async || keys.current().is_ok()).await;
    let first = keys.current().unwrap();
    assert!(first.key("k1").is_some() && first.key("k2").is_none());

    let token = TokenId::generate();
    let mut changes = keys.changes();
    script.revoked.lock().unwrap().push(token);
    tokio::time::timeout(DEADLINE, changes.changed()).await.unwrap().unwrap();
    assert!(keys.current().unwrap().is_revoked(token));
    assert!(keys.current().unwrap().is_removed(&REMOVED) && !first.is_removed(&REMOVED));

    let seen = script.calls.load(Ordering::SeqCst);
    eventually(DEADLINE, async || script.calls.load(Ordering::SeqCst) > seen + 3).await;
    assert!(!changes.has_changed().unwrap(), "an unchanged snapshot notifies no subscriber");

    script.hangs.store(true, Ordering::SeqCst);
    assert!(keys.current().unwrap().is_revoked(token), "the last known revocations still apply");
    eventually(DEADLINE, async || keys.current().is_err()).await;
    // Without this the keys continue to call the peer, which waits for their calls when it stops.
    drop(keys);
    assert!(running.stop().await, "a call whose caller has gone does not hold up the end");
}
