//! The faults: drawn from the seed, injected into the stack, and followed by the checks that must hold right after
//! each.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_testkit::poll;
use ensemble_testkit::postgres::Cluster;
use nix::sys::signal::Signal;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio::time::sleep;

use crate::proxy::LinkState;
use crate::stack::{PROBES, Stack};

/// The limit from a restart to readiness, and from the end of a database fault to full service.
pub(crate) const RECOVERY: Duration = Duration::from_secs(2);
/// How long to wait before a recovery counts as failed. Longer than the limits, so that the delay can be reported.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The limit for a refusal while the database is unavailable, and the tolerance for a busy machine.
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);
const NOISE: Duration = Duration::from_millis(500);
/// The first links lead to the databases of the first services.
const DATABASES: usize = PROBES.len();
const DELAY: Duration = Duration::from_millis(50);

/// One fault. Numbers are positions of services and links in the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    KillService(usize),
    /// Kills PostgreSQL and starts it again after this time.
    KillDatabase(Duration),
    /// Stops PostgreSQL in order and starts it again.
    RestartDatabase,
    /// Stops all PostgreSQL processes for this time (SIGSTOP).
    FreezeDatabase(Duration),
    Slow(usize, Duration),
    Cut(usize, Duration),
    Stall(usize, Duration),
}

impl Fault {
    /// One round in random order: a kill of every service, every database fault, and faults of some links.
    pub(crate) fn round(random: &mut StdRng, services: usize, links: usize) -> Vec<Self> {
        let moment = |random: &mut StdRng| Duration::from_millis(random.gen_range(200..2_000));
        let mut faults: Vec<Self> = (0..services).map(Self::KillService).collect();
        faults.extend([
            Self::KillDatabase(moment(random)),
            Self::RestartDatabase,
            Self::FreezeDatabase(moment(random)),
        ]);
        for make in [Self::Slow, Self::Cut, Self::Cut, Self::Stall, Self::Stall] {
            faults.push(make(random.gen_range(0..links), moment(random)));
        }
        faults.shuffle(random);
        faults
    }
}

impl Stack {
    /// Injects the fault and waits until the stack has recovered. The error is a violation.
    pub(crate) async fn apply(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillService(at) => {
                let service = self.services.get_mut(at).context("no such service")?;
                service.kill();
                service.spawn()?;
                let took = service.ready(&self.http, TIMEOUT).await?;
                self.slowest.start = self.slowest.start.max(took);
                ensure!(took <= RECOVERY, "{} was ready only after {took:?}", service.name);
            }
            Fault::KillDatabase(pause) => {
                self.with_cluster(Cluster::kill).await?;
                let refused = self.report_unavailable(0..DATABASES).await;
                sleep(pause).await;
                self.with_cluster(Cluster::up).await?;
                self.all_recover().await?;
                refused?;
            }
            Fault::RestartDatabase => {
                self.with_cluster(|cluster| {
                    cluster.stop();
                    cluster.up()
                })
                .await?;
                self.all_recover().await?;
            }
            Fault::FreezeDatabase(time) => {
                self.with_cluster(|cluster| cluster.signal_all(Signal::SIGSTOP)).await?;
                let refused = self.report_unavailable(0..DATABASES).await;
                sleep(time).await;
                self.with_cluster(|cluster| cluster.signal_all(Signal::SIGCONT)).await?;
                self.all_recover().await?;
                refused?;
            }
            Fault::Slow(at, time) => self.break_link(at, LinkState::Slow(DELAY), time).await?,
            Fault::Cut(at, time) => self.break_link(at, LinkState::Cut, time).await?,
            Fault::Stall(at, time) => self.break_link(at, LinkState::Stall, time).await?,
        }
        Ok(())
    }

    async fn break_link(&mut self, at: usize, state: LinkState, time: Duration) -> Result<()> {
        let link = self.links.get(at).context("no such link")?;
        link.set(state);
        let refused = if at < DATABASES { self.report_unavailable(at..at + 1).await } else { Ok(()) };
        sleep(time).await;
        if let Some(link) = self.links.get(at) {
            link.set(LinkState::Open);
        }
        self.all_recover().await?;
        refused
    }

    /// Checks that a service whose database is unavailable refuses soon, with `Retry-After`.
    async fn report_unavailable(&mut self, services: std::ops::Range<usize>) -> Result<()> {
        let sent = services.filter_map(|at| Some((self.services.get(at)?, PROBES.get(at)?)));
        let (http, probe) = (&self.http, &self.probe);
        let sent = sent.map(|(service, path)| async move {
            let begun = Instant::now();
            let url = format!("{}{path}", service.url());
            let answer = http.get(url).bearer_auth(probe).timeout(TIMEOUT).send().await;
            let answer =
                answer.with_context(|| format!("{} does not report that its database is unavailable", service.name))?;
            let (status, took) = (answer.status().as_u16(), begun.elapsed());
            ensure!(
                answer.status().is_success() || status == 503 && answer.headers().contains_key("retry-after"),
                "{} answers {status} while its database is unavailable",
                service.name
            );
            ensure!(took <= REFUSAL_LIMIT + NOISE, "{} says {status} only after {took:?}", service.name);
            Ok::<_, anyhow::Error>(took)
        });
        let took = futures_util::future::join_all(sent).await;
        for took in took {
            self.slowest.refusal = self.slowest.refusal.max(took?);
        }
        Ok(())
    }

    /// Waits until every service is ready and serves clients, and checks the time.
    async fn all_recover(&mut self) -> Result<()> {
        let since = Instant::now();
        for service in &mut self.services {
            service.ready(&self.http, TIMEOUT).await?;
        }
        let served = poll(TIMEOUT, async || self.answers().await.then_some(())).await;
        served.context("clients are not served although all services are ready")?;
        let took = since.elapsed();
        self.slowest.recovery = self.slowest.recovery.max(took);
        ensure!(took <= RECOVERY, "the stack recovered only after {took:?}");
        Ok(())
    }
}
