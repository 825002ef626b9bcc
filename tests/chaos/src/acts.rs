//! What is done to the town, drawn from the seed, and what must be true again right after it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_testkit::postgres::Cluster;
use nix::sys::signal::Signal;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::proxy::Weather;
use crate::town::Town;

/// Ready this soon after it was started again; recovered this soon after the database is back.
pub(crate) const RECOVERY: Duration = Duration::from_secs(2);
/// How long is waited to be able to tell how late it was.
const PATIENCE: Duration = Duration::from_secs(20);
const DELAY: Duration = Duration::from_millis(50);

/// One act. Links and services by their place in the town.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    KillService(usize),
    /// Killed, and started again after a while.
    KillDatabase(Duration),
    /// Stopped in an orderly way, and started again.
    RestartDatabase,
    /// All its processes stand still for a while.
    FreezeDatabase(Duration),
    Slow(usize, Duration),
    Cut(usize, Duration),
    Swallow(usize, Duration),
}

impl Act {
    pub(crate) fn draw(random: &mut StdRng, services: usize, links: usize) -> Self {
        let moment = Duration::from_millis(random.gen_range(200..2_500));
        match random.gen_range(0..13) {
            0..5 => Self::KillService(random.gen_range(0..services)),
            5 => Self::KillDatabase(moment),
            6 => Self::RestartDatabase,
            7 => Self::FreezeDatabase(moment),
            8 | 9 => Self::Slow(random.gen_range(0..links), moment),
            10 => Self::Cut(random.gen_range(0..links), moment),
            _ => Self::Swallow(random.gen_range(0..links), moment),
        }
    }
}

impl Town {
    /// Does it, and waits until the town is itself again; an error is what was not as promised.
    pub(crate) async fn suffer(&mut self, act: Act) -> Result<()> {
        match act {
            Act::KillService(at) => {
                let service = self.services.get_mut(at).context("no such service")?;
                service.kill();
                service.spawn()?;
                let took = service.ready(&self.http, PATIENCE).await?;
                self.slowest.start = self.slowest.start.max(took);
                ensure!(took <= RECOVERY, "{} was ready only after {took:?}", service.name);
            }
            Act::KillDatabase(pause) => {
                self.with_cluster(Cluster::kill).await?;
                sleep(pause).await;
                self.with_cluster(Cluster::up).await?;
                self.all_recover().await?;
            }
            Act::RestartDatabase => {
                self.with_cluster(|cluster| {
                    cluster.stop();
                    cluster.up()
                })
                .await?;
                self.all_recover().await?;
            }
            Act::FreezeDatabase(time) => {
                self.with_cluster(|cluster| cluster.signal_all(Signal::SIGSTOP)).await?;
                sleep(time).await;
                self.with_cluster(|cluster| cluster.signal_all(Signal::SIGCONT)).await?;
                self.all_recover().await?;
            }
            Act::Slow(at, time) => self.weather(at, Weather::Slow(DELAY), time).await?,
            Act::Cut(at, time) => self.weather(at, Weather::Cut, time).await?,
            Act::Swallow(at, time) => self.weather(at, Weather::Swallow, time).await?,
        }
        Ok(())
    }

    async fn weather(&mut self, at: usize, weather: Weather, time: Duration) -> Result<()> {
        let link = self.links.get(at).context("no such link")?;
        link.set(weather);
        sleep(time).await;
        link.set(Weather::Fair);
        self.all_recover().await
    }

    /// Everything is ready and answers a client again, soon enough.
    async fn all_recover(&mut self) -> Result<()> {
        let since = Instant::now();
        for service in &mut self.services {
            service.ready(&self.http, PATIENCE).await?;
        }
        while !self.answers().await {
            ensure!(since.elapsed() < PATIENCE, "clients are not answered although all services are ready");
            sleep(Duration::from_millis(10)).await;
        }
        let took = since.elapsed();
        self.slowest.recovery = self.slowest.recovery.max(took);
        ensure!(took <= RECOVERY, "the town recovered only after {took:?}");
        Ok(())
    }
}
