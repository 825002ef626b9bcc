//! The runner from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use ensemble_host::drain::Phase;
use ensemble_host::{Drain, wake};
use ensemble_types::leases::{Lease, LeaseRequest, Leases, Order, OrderKind};
use ensemble_types::runs::Provider;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::attempt::{self, Context, Held, Slot, Unchecked};
use crate::config::Config;
use crate::offers;
use crate::offers::Offer;
use crate::owner;
use crate::presence;
use crate::server::{self, Server, ServerError};
use crate::spool::Spool;
use crate::workplace::{Orders, Workplaces};

/// How long an ending runner waits for a heartbeat that is on its way.
const LAST_HEARTBEAT: Duration = Duration::from_secs(3);

/// Why a runner could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot use the state directory {path}")]
    State {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot set up the connection to the server")]
    Client(#[from] ensemble_client::Error),
    #[error("the runner would do no task: {0}")]
    NoOwner(&'static str),
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The answer of a server that has deleted the machine. It would not take what the machine's agents do.
    #[error(
        "the server does not accept this machine: it was deleted or removed, or its token has expired or was revoked. Its \
         agents were ended"
    )]
    NotAccepted,
}

/// Runs until TERM, INT or HUP. The first signal lets attempts continue for a while, the second hands them back at
/// once. Returns when no process of the runner is left.
pub async fn run(config: Config) -> Result<(), RunError> {
    let drain = Drain::default();
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(RunError::Signals)?;
    let stopping = drain.clone();
    let signals = tokio::spawn(async move {
        for step in [Drain::begin, Drain::hurry] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hang_up.recv() => {}
            }
            step(&stopping);
        }
    });
    let result = run_until(config, drain).await;
    signals.abort();
    result
}

/// Runs until `drain` is used. For programs that handle signals themselves.
pub async fn run_until(config: Config, drain: Drain) -> Result<(), RunError> {
    if config.hosting.as_ref().is_some_and(|hosting| hosting.sessions_only) {
        let config = Arc::new(config);
        owner::run(config.clone(), Arc::new(config.settings()), drain, watch::Sender::new(None)).await;
        return Ok(());
    }
    config.check_accept().map_err(RunError::NoOwner)?;
    let server = Arc::new(server::connect(&config)?);
    run_with(config, server, drain).await
}

/// The same with any implementation of [`Server`].
pub(crate) async fn run_with(config: Config, server: Arc<dyn Server>, drain: Drain) -> Result<(), RunError> {
    let config = Arc::new(config);
    let spool = Spool::open(&config.state_dir)
        .map_err(|source| RunError::State { path: config.state_dir.display().to_string(), source })?;
    let unfinished =
        spool.recover().map_err(|source| RunError::State { path: config.state_dir.display().to_string(), source })?;
    let (wake_ups, woken) = watch::channel(0);
    let workplaces = Workplaces::open(&config)
        .map_err(|source| RunError::State { path: config.state_dir.display().to_string(), source })?;
    let (owners, owner) = watch::channel(None);
    let context = Context {
        config: config.clone(),
        settings: Arc::new(config.settings()),
        server,
        spool: Arc::new(spool),
        drain: drain.clone(),
        woken,
        held: Held::default(),
        workplaces,
        orders: Orders::default(),
        owner,
        signed_out: Arc::default(),
        unchecked: Unchecked::default(),
    };
    let slots = Arc::new(Semaphore::new(usize::try_from(config.capacity).unwrap_or(1)));
    // Until the programs were asked whether they can work, nothing is offered.
    let (offered, offers) = watch::channel(Vec::new());

    let mut background = JoinSet::new();
    background.spawn(wake::watch(wake_ups));
    background.spawn(context.workplaces.clone().look_at_git());
    background.spawn(offers::keep(config.clone(), offered, context.signed_out.clone()));
    let (beating, ending) = oneshot::channel();
    let mut presence = tokio::spawn(presence::run(context.clone(), offers.clone(), slots.clone(), ending));
    let sessions = tokio::spawn(owner::run(config.clone(), context.settings.clone(), drain.clone(), owners));
    let mut attempts = JoinSet::new();
    for record in unfinished {
        attempts.spawn(attempt::recover(context.clone(), record));
    }
    tracing::info!(machine.id = %config.machine, server = config.server, capacity = config.capacity, "The runner is ready");
    let ended = tokio::select! {
        () = serve(&context, offers.clone(), &slots, &mut attempts) => {
            drain.hurry();
            Err(RunError::NotAccepted)
        }
        () = drain.reached(Phase::Draining) => Ok(()),
    };
    background.spawn(obey(context.clone(), offers.clone()));
    shut_down(&context, &slots, &mut attempts).await;
    // Turns of sessions have their own grace.
    let _ = sessions.await;
    background.shutdown().await;
    // A heartbeat that the server takes after the sign-off would say that the machine is online.
    drop(beating);
    if timeout(LAST_HEARTBEAT, &mut presence).await.is_err() {
        presence.abort();
    }
    presence::sign_off(&context, &offers, &slots).await;
    ended
}

/// Takes leases and starts their attempts, and carries out orders, until no lease is held any more because the server has not
/// accepted the machine's token for too long.
async fn serve(
    context: &Context,
    mut offers: watch::Receiver<Vec<Offer>>,
    slots: &Arc<Semaphore>,
    attempts: &mut JoinSet<()>,
) {
    let timing = context.config.timing;
    let mut backoff = timing.backoff();
    let mut woken = context.woken.clone();
    let mut was_unavailable = false;
    let mut refused_since: Option<Instant> = None;
    loop {
        while attempts.try_join_next().is_some() {}
        let request = request(context, &offers.borrow(), slots);
        let answer = tokio::select! {
            answer = context.server.lease(&request) => answer,
            // The connection of the pending request did not survive the sleep.
            () = wake::next(&mut woken) => continue,
            // The request that ends here asks for orders only, so no lease is lost with it.
            () = may_take_work(context, slots, &mut offers), if request.capacity == 0 => continue,
        };
        match answer {
            Ok(Leases { leases, orders }) => {
                if std::mem::take(&mut was_unavailable) {
                    tracing::info!("The server grants leases again");
                }
                backoff.reset();
                refused_since = None;
                leases.into_iter().for_each(|lease| start_attempt(context, lease, &offers, slots, attempts));
                carry_out(context, &orders);
            }
            Err(error) => {
                if !std::mem::replace(&mut was_unavailable, true) {
                    log_lease_error(&error);
                }
                refused_since = match &error {
                    ServerError::Unauthorized(_) => Some(refused_since.unwrap_or_else(Instant::now)),
                    _ => None,
                };
                if refused_since.is_some_and(|since| since.elapsed() > timing.refused_grace) {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(backoff.pause(error.retry_after())) => {}
                    () = wake::next(&mut woken) => {}
                }
            }
        }
    }
}

/// Waits until there is a free slot, a provider to offer, and news about every lease that is held.
async fn may_take_work(context: &Context, slots: &Semaphore, offers: &mut watch::Receiver<Vec<Offer>>) {
    // The semaphore is never closed, so this only waits.
    drop(slots.acquire().await);
    let mut owner = context.owner.clone();
    let is_offered = |offers: &[Offer]| does_demos(context, offers) || offers.iter().any(|offer| offer.program.is_ok());
    while !is_offered(&offers.borrow_and_update()) {
        tokio::select! {
            Ok(()) = offers.changed() => {}
            Ok(()) = owner.changed() => {}
            else => std::future::pending().await,
        }
    }
    context.held.none_late(late(context)).await;
}

/// Whether it begins demos: it hosts sessions, and knows which agents are there, so that the request does not have to change soon.
fn does_demos(context: &Context, offers: &[Offer]) -> bool {
    !offers.is_empty() && context.owner.borrow().is_some()
}

/// A lease is renewed every [`Timing::lease_beat`]. After this time something is wrong, for example the machine has slept.
///
/// [`Timing::lease_beat`]: crate::config::Timing::lease_beat
fn late(context: &Context) -> Duration {
    context.config.timing.lease_beat * 3 / 2
}

/// What the runner asks for: as much work as it has room for, and nothing but orders while it must not take any.
fn request(context: &Context, offers: &[Offer], slots: &Semaphore) -> LeaseRequest {
    let mut providers: Vec<Provider> =
        offers.iter().filter(|offer| offer.program.is_ok()).map(|offer| offer.provider).collect();
    if does_demos(context, offers) {
        providers.extend(Provider::DEMO.parse::<Provider>());
    }
    let takes_work =
        !providers.is_empty() && context.drain.phase() == Phase::Serving && !context.held.any_late(late(context));
    LeaseRequest {
        machine_id: context.config.machine.clone(),
        providers,
        capacity: if takes_work { u32::try_from(slots.available_permits()).unwrap_or(1) } else { 0 },
        slots: Some(context.config.capacity),
        taken_orders: context.orders.taken(),
        wait_ms: u64::try_from(context.config.timing.lease_wait.as_millis()).unwrap_or(60_000),
    }
}

fn carry_out(context: &Context, orders: &[Order]) {
    for order in orders {
        match order.kind {
            OrderKind::Cancel => order.lease_id.into_iter().for_each(|lease| context.held.cancel(lease)),
            OrderKind::Apply | OrderKind::Discard => context.orders.carry_out(context, order.clone()),
        }
    }
}

/// Carries out orders while the runner drains and takes no work.
async fn obey(context: Context, offers: watch::Receiver<Vec<Offer>>) {
    let mut backoff = context.config.timing.backoff();
    loop {
        let request = LeaseRequest { capacity: 0, ..request(&context, &offers.borrow(), &Semaphore::new(0)) };
        match context.server.lease(&request).await {
            Ok(answer) => {
                backoff.reset();
                carry_out(&context, &answer.orders);
            }
            Err(error) => tokio::time::sleep(backoff.pause(error.retry_after())).await,
        }
    }
}

fn start_attempt(
    context: &Context,
    lease: Lease,
    offers: &watch::Receiver<Vec<Offer>>,
    slots: &Arc<Semaphore>,
    attempts: &mut JoinSet<()>,
) {
    let Ok(permit) = slots.clone().try_acquire_owned() else {
        // More than requested. Without heartbeats the lease expires and returns to the queue.
        tracing::warn!(lease.id = %lease.id, "The server granted more leases than requested");
        return;
    };
    let offer = offers.borrow().iter().find(|offer| offer.provider == lease.provider).cloned();
    attempts.spawn(attempt::run(context.clone(), lease, offer, Slot::new(slots, permit)));
}

/// Waits until the running attempts end or hands them back, then delivers the reports.
async fn shut_down(context: &Context, slots: &Semaphore, attempts: &mut JoinSet<()>) {
    let timing = context.config.timing;
    let running = slots.available_permits() < usize::try_from(context.config.capacity).unwrap_or(1);
    tracing::info!(running, "The runner is stopping and takes no new work");
    tokio::select! {
        _ = slots.acquire_many(context.config.capacity) => {}
        () = tokio::time::sleep(timing.drain_grace) => context.drain.hurry(),
        () = context.drain.reached(Phase::HandingBack) => {}
    }
    // Handing back takes no longer than TERM and KILL.
    let _ = slots.acquire_many(context.config.capacity).await;
    let delivered = async { while attempts.join_next().await.is_some() {} };
    if timeout(timing.deliver_grace, delivered).await.is_err() {
        tracing::warn!(reports = attempts.len(), "Some reports are not delivered yet; the next start delivers them");
    }
    context.orders.finished(timing.deliver_grace).await;
    tracing::info!("The runner has stopped");
}

fn log_lease_error(error: &ServerError) {
    match error {
        ServerError::Unauthorized(_) => tracing::error!(
            "Cannot get work: the server does not accept this machine. If it was deleted, the runner ends soon"
        ),
        ServerError::Refused(_) => tracing::error!("Cannot get work: {error}"),
        _ => tracing::warn!("Cannot get work at the moment: {error}"),
    }
}
