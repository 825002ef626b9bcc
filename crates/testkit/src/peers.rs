//! The peers of the service under test: the generated contracts, implemented in memory and served on one internal
//! listener. Each peer can be made unavailable.

mod readers;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use bytes::Bytes;
use ensemble_chassis::{Clock, RpcCall, RpcMount, http_client};
use ensemble_rpc::identity::{
    Accounts, GetAccountRequest, GetAccountResponse, GivePushesRequest, GivePushesResponse, Keys, ListVersion,
    ListVersionsRequest, ListVersionsResponse, PushEvent, Pushes, RevokeMachineTokensRequest,
    RevokeMachineTokensResponse, SnapshotRequest, SnapshotResponse, VerificationKey, mount_accounts, mount_keys,
    mount_pushes,
};
use ensemble_rpc::machines::{GetMachineRequest, GetMachineResponse, MachineDirectory, mount_machine_directory};
use ensemble_rpc::orchestrator::{
    EndMachineLeasesRequest, EndMachineLeasesResponse, MachineLeases, mount_machine_leases,
};
use ensemble_rpc::sessions::{AccountHint, AccountHints, GiveHintsRequest, GiveHintsResponse, mount_account_hints};
use ensemble_rpc::{Channel, Peer, RpcError};
use ensemble_types::ids::{MachineId, TokenId, UserId};
use futures_util::future::BoxFuture;

use crate::{Issuer, SOON};

/// The token that services and these peers share.
pub const INTERNAL_TOKEN: &str = "internal-token-of-the-tests";

/// Calls that no request waits for. Their number depends on the time, because one call carries all that is there.
const IN_THE_BACKGROUND: [&str; 3] = ["Keys/Snapshot", "AccountHints/Give", "Pushes/Give"];

/// All peers. Cheap to clone.
#[derive(Clone)]
pub struct Peers {
    inner: Arc<Inner>,
    url: String,
}

struct Inner {
    requests: Arc<AtomicU64>,
    issuer: Issuer,
    users: Mutex<HashSet<String>>,
    /// Each with the time of its creation.
    machines: Mutex<HashMap<(String, String), i64>>,
    identity_away: AtomicBool,
    machines_away: AtomicBool,
    orchestrator_away: AtomicBool,
    revoked_machines: Mutex<Vec<RevokeMachineTokensRequest>>,
    /// By user, the version of the newest device list.
    list_versions: Mutex<HashMap<String, u32>>,
    ended_machines: Mutex<Vec<EndMachineLeasesRequest>>,
    hints: Mutex<Vec<AccountHint>>,
    pushes: Mutex<Vec<PushEvent>>,
    work: readers::Work,
}

impl Peers {
    /// Serves until the process ends. Call it on the runtime of the test.
    pub async fn start() -> Self {
        let requests = Arc::<AtomicU64>::default();
        let inner = Arc::new(Inner {
            requests: Arc::clone(&requests),
            issuer: Issuer::new(),
            users: Mutex::default(),
            machines: Mutex::default(),
            identity_away: AtomicBool::default(),
            machines_away: AtomicBool::default(),
            orchestrator_away: AtomicBool::default(),
            revoked_machines: Mutex::default(),
            list_versions: Mutex::default(),
            ended_machines: Mutex::default(),
            hints: Mutex::default(),
            pushes: Mutex::default(),
            work: readers::Work::default(),
        });
        let mut mounts = mount_keys(Arc::clone(&inner) as Arc<dyn Keys>);
        mounts.extend(mount_accounts(Arc::clone(&inner) as Arc<dyn Accounts>));
        mounts.extend(mount_machine_directory(Arc::clone(&inner) as Arc<dyn MachineDirectory>));
        mounts.extend(mount_machine_leases(Arc::clone(&inner) as Arc<dyn MachineLeases>));
        mounts.extend(mount_account_hints(Arc::clone(&inner) as Arc<dyn AccountHints>));
        mounts.extend(mount_pushes(Arc::clone(&inner) as Arc<dyn Pushes>));
        mounts.extend(readers::mounts(&inner));
        let url = serve(mounts, requests).unwrap_or_else(|error| panic!("no stand-in peers: {error}"));
        Self { inner, url }
    }

    /// The URL of the internal listener, which is the same for all peers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The variables that point a service to these peers.
    pub fn vars(&self) -> Vec<(String, String)> {
        [
            ("INTERNAL_TOKEN", INTERNAL_TOKEN),
            ("IDENTITY_RPC_URL", &self.url),
            ("MACHINE_REGISTRY_RPC_URL", &self.url),
            ("ORCHESTRATOR_RPC_URL", &self.url),
            ("SESSION_STORE_RPC_URL", &self.url),
            ("KEYS_REFRESH_MS", "100"),
            ("WORKERS", "2"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// How many calls have arrived, without those in the background.
    pub fn requests(&self) -> u64 {
        self.inner.requests.load(Ordering::SeqCst)
    }

    pub fn issuer(&self) -> &Issuer {
        &self.inner.issuer
    }

    /// Adds an account to identity.
    pub fn new_user(&self) -> UserId {
        let user = UserId::generate();
        lock(&self.inner.users).insert(user.to_string());
        user
    }

    /// Adds a machine to machine-registry.
    pub fn new_machine(&self, owner: UserId) -> MachineId {
        let machine = MachineId::generate();
        self.register_machine(owner, &machine);
        machine
    }

    /// Adds a machine with this id to machine-registry, also after another one with this id was deleted.
    pub fn register_machine(&self, owner: UserId, machine: &MachineId) {
        let created_at = Clock::system().now().micros();
        lock(&self.inner.machines).insert((owner.to_string(), machine.to_string()), created_at);
    }

    pub fn remove_machine(&self, owner: UserId, machine: &MachineId) {
        lock(&self.inner.machines).remove(&(owner.to_string(), machine.to_string()));
    }

    pub fn identity_away(&self, away: bool) {
        self.inner.identity_away.store(away, Ordering::SeqCst);
    }

    pub fn machine_registry_away(&self, away: bool) {
        self.inner.machines_away.store(away, Ordering::SeqCst);
    }

    pub fn orchestrator_away(&self, away: bool) {
        self.inner.orchestrator_away.store(away, Ordering::SeqCst);
    }

    /// The revocations that identity received.
    pub fn set_list_version(&self, user: UserId, version: u32) {
        lock(&self.inner.list_versions).insert(user.to_string(), version);
    }

    pub fn revoked_machines(&self) -> Vec<RevokeMachineTokensRequest> {
        lock(&self.inner.revoked_machines).clone()
    }

    /// The machines whose work the orchestrator was asked to end.
    pub fn ended_machines(&self) -> Vec<EndMachineLeasesRequest> {
        lock(&self.inner.ended_machines).clone()
    }
}

impl Peers {
    /// The hints of an account that session-store was given, as kind, id and revision.
    pub fn hints(&self, user: UserId) -> Vec<(String, String, i64)> {
        let user = user.to_string();
        let of_user = |hint: &&AccountHint| hint.user_id == user;
        let given = lock(&self.inner.hints);
        given.iter().filter(of_user).map(|hint| (hint.kind.clone(), hint.id.clone(), hint.revision)).collect()
    }
}

impl Peers {
    /// The events of which identity was asked to notify an account's devices.
    pub fn pushes(&self, user: UserId) -> Vec<PushEvent> {
        let user = user.to_string();
        lock(&self.inner.pushes).iter().filter(|event| event.user_id == user).cloned().collect()
    }
}

impl Pushes for Inner {
    fn give(&self, request: GivePushesRequest) -> BoxFuture<'_, Result<GivePushesResponse, RpcError>> {
        Box::pin(async move {
            here(&self.identity_away)?;
            lock(&self.pushes).extend(request.events);
            Ok(GivePushesResponse {})
        })
    }
}

impl AccountHints for Inner {
    fn give(&self, request: GiveHintsRequest) -> BoxFuture<'_, Result<GiveHintsResponse, RpcError>> {
        Box::pin(async move {
            lock(&self.hints).extend(request.hints);
            Ok(GiveHintsResponse {})
        })
    }
}

/// A channel to the internal listener of a service under test: `AccountsClient::new(channel_to(&url))`.
pub fn channel_to(internal_url: &str) -> Channel {
    ensemble_chassis::process::install_providers();
    let peer = Peer { url: internal_url.to_owned(), deadline: SOON };
    let http = http_client().unwrap_or_else(|error| panic!("no HTTP client: {error}"));
    Channel::with(http, INTERNAL_TOKEN.to_owned().into(), &peer)
}

impl Keys for Inner {
    fn snapshot(&self, request: SnapshotRequest) -> BoxFuture<'_, Result<SnapshotResponse, RpcError>> {
        Box::pin(async move {
            here(&self.identity_away)?;
            let revoked = self.issuer.revoked();
            let removed = self.issuer.removed();
            let version = format!("{} {}", revoked.len(), removed.len());
            if request.known_version == version {
                return Ok(SnapshotResponse { version, unchanged: true, ..SnapshotResponse::default() });
            }
            let (key_id, public_key) = self.issuer.public_key();
            Ok(SnapshotResponse {
                version,
                unchanged: false,
                keys: vec![VerificationKey { key_id, public_key: public_key.to_vec() }],
                revoked_token_ids: revoked.iter().map(|id: &TokenId| id.uuid().as_bytes().to_vec()).collect(),
                removed_devices: removed.iter().map(|device| device.0.to_vec()).collect(),
            })
        })
    }
}

impl Accounts for Inner {
    fn get(&self, request: GetAccountRequest) -> BoxFuture<'_, Result<GetAccountResponse, RpcError>> {
        Box::pin(async move {
            here(&self.identity_away)?;
            if !lock(&self.users).contains(&request.user_id) {
                return Err(RpcError::NotFound(request.user_id));
            }
            Ok(GetAccountResponse { user_id: request.user_id, created_at: 0 })
        })
    }

    fn list_versions(&self, request: ListVersionsRequest) -> BoxFuture<'_, Result<ListVersionsResponse, RpcError>> {
        Box::pin(async move {
            here(&self.identity_away)?;
            let known = lock(&self.list_versions);
            let of = |user_id: String| Some(ListVersion { version: *known.get(&user_id)?, user_id });
            Ok(ListVersionsResponse { versions: request.user_ids.into_iter().filter_map(of).collect() })
        })
    }

    fn revoke_machine_tokens(
        &self,
        request: RevokeMachineTokensRequest,
    ) -> BoxFuture<'_, Result<RevokeMachineTokensResponse, RpcError>> {
        Box::pin(async move {
            here(&self.identity_away)?;
            lock(&self.revoked_machines).push(request);
            Ok(RevokeMachineTokensResponse { revoked: 0 })
        })
    }
}

impl MachineDirectory for Inner {
    fn get(&self, request: GetMachineRequest) -> BoxFuture<'_, Result<GetMachineResponse, RpcError>> {
        Box::pin(async move {
            here(&self.machines_away)?;
            let GetMachineRequest { user_id, machine_id } = request;
            match lock(&self.machines).get(&(user_id, machine_id.clone())) {
                Some(created_at) => Ok(GetMachineResponse { machine_id, online: true, created_at: *created_at }),
                None => Err(RpcError::NotFound(machine_id)),
            }
        })
    }
}

impl MachineLeases for Inner {
    fn end(&self, request: EndMachineLeasesRequest) -> BoxFuture<'_, Result<EndMachineLeasesResponse, RpcError>> {
        Box::pin(async move {
            here(&self.orchestrator_away)?;
            lock(&self.ended_machines).push(request);
            Ok(EndMachineLeasesResponse { leases_ended: 0, tasks_failed: 0 })
        })
    }
}

fn here(away: &AtomicBool) -> Result<(), RpcError> {
    if away.load(Ordering::SeqCst) {
        Err(RpcError::Unavailable("made unavailable by the test".to_owned()))
    } else {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The HTTP routes of the internal listener.
fn serve(mounts: Vec<RpcMount>, requests: Arc<AtomicU64>) -> std::io::Result<String> {
    let mounts: Arc<Vec<(String, RpcCall)>> =
        Arc::new(mounts.into_iter().map(|mount| (format!("/rpc/{}", mount.path), mount.call)).collect());
    let server = HttpServer::new(move || {
        let (mounts, requests) = (web::Data::from(Arc::clone(&mounts)), web::Data::from(Arc::clone(&requests)));
        App::new().app_data(mounts).app_data(requests).default_service(web::to(answer))
    })
    .workers(1)
    .keep_alive(Duration::from_secs(75))
    .disable_signals()
    .bind(("127.0.0.1", 0))?;
    let address = server.addrs().first().copied().ok_or_else(|| std::io::Error::other("no address"))?;
    tokio::spawn(server.run());
    Ok(format!("http://{address}"))
}

async fn answer(
    request: HttpRequest,
    body: Bytes,
    mounts: web::Data<Vec<(String, RpcCall)>>,
    requests: web::Data<AtomicU64>,
) -> HttpResponse {
    if !IN_THE_BACKGROUND.iter().any(|call| request.path().ends_with(call)) {
        requests.fetch_add(1, Ordering::SeqCst);
    }
    let Some((_, call)) = mounts.iter().find(|(path, _)| path == request.path()) else {
        return HttpResponse::NotFound().finish();
    };
    match call(body).await {
        Ok(answer) => HttpResponse::Ok().content_type("application/protobuf").body(answer),
        Err(status) => {
            let code =
                if status.code == "unavailable" { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_REQUEST };
            HttpResponse::build(code).json(serde_json::json!({ "code": status.code, "msg": status.message }))
        }
    }
}
