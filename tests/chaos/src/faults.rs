//! What is done to the town, drawn from the seed, and what must be true again right after it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ensemble_testkit::postgres::Cluster;
use nix::sys::signal::Signal;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio::time::sleep;

use crate::proxy::Weather;
use crate::town::{PROBES, Town};

/// Ready this soon after it was started again; recovered this soon after the database is back.
pub(crate) const RECOVERY: Duration = Duration::from_secs(2);
/// How long is waited to be able to tell how late it was.
const TIMEOUT: Duration = Duration::from_secs(20);
/// A caller hears this soon that the database is away; and what a busy machine may add to it.
const TOLD: Duration = Duration::from_secs(2);
const NOISE: Duration = Duration::from_millis(500);
/// The first links lead to the databases of the first services.
const DATABASES: usize = PROBES.len();
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
    /// One round: every service is killed, everything befalls the database, and some links suffer, in a random order.
    pub(crate) fn round(random: &mut StdRng, services: usize, links: usize) -> Vec<Self> {
        let moment = |random: &mut StdRng| Duration::from_millis(random.gen_range(200..2_000));
        let mut acts: Vec<Self> = (0..services).map(Self::KillService).collect();
        acts.extend([Self::KillDatabase(moment(random)), Self::RestartDatabase, Self::FreezeDatabase(moment(random))]);
        for make in [Self::Slow, Self::Cut, Self::Cut, Self::Swallow, Self::Swallow] {
            acts.push(make(random.gen_range(0..links), moment(random)));
        }
        acts.shuffle(random);
        acts
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
                let took = service.ready(&self.http, TIMEOUT).await?;
                self.slowest.start = self.slowest.start.max(took);
                ensure!(took <= RECOVERY, "{} was ready only after {took:?}", service.name);
            }
            Act::KillDatabase(pause) => {
                self.with_cluster(Cluster::kill).await?;
                let told = self.are_told(0..DATABASES).await;
                sleep(pause).await;
                self.with_cluster(Cluster::up).await?;
                self.all_recover().await?;
                told?;
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
                let told = self.are_told(0..DATABASES).await;
                sleep(time).await;
                self.with_cluster(|cluster| cluster.signal_all(Signal::SIGCONT)).await?;
                self.all_recover().await?;
                told?;
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
        let told = if at < DATABASES { self.are_told(at..at + 1).await } else { Ok(()) };
        sleep(time).await;
        if let Some(link) = self.links.get(at) {
            link.set(Weather::Fair);
        }
        self.all_recover().await?;
        told
    }

    /// Whoever asks a service whose database is away is told so soon, and when to come back.
    async fn are_told(&mut self, services: std::ops::Range<usize>) -> Result<()> {
        let asked = services.filter_map(|at| Some((self.services.get(at)?, PROBES.get(at)?)));
        let (http, probe) = (&self.http, &self.probe);
        let asked = asked.map(|(service, path)| async move {
            let begun = Instant::now();
            let url = format!("{}{path}", service.url());
            let answer = http.get(url).bearer_auth(probe).timeout(TIMEOUT).send().await;
            let answer = answer.with_context(|| format!("{} does not say that its database is away", service.name))?;
            let (status, took) = (answer.status().as_u16(), begun.elapsed());
            ensure!(
                answer.status().is_success() || status == 503 && answer.headers().contains_key("retry-after"),
                "{} answers {status} when its database is away",
                service.name
            );
            ensure!(took <= TOLD + NOISE, "{} says {status} only after {took:?}", service.name);
            Ok::<_, anyhow::Error>(took)
        });
        let took = futures_util::future::join_all(asked).await;
        for took in took {
            self.slowest.told = self.slowest.told.max(took?);
        }
        Ok(())
    }

    /// Everything is ready and answers a client again, soon enough.
    async fn all_recover(&mut self) -> Result<()> {
        let since = Instant::now();
        for service in &mut self.services {
            service.ready(&self.http, TIMEOUT).await?;
        }
        while !self.answers().await {
            ensure!(since.elapsed() < TIMEOUT, "clients are not answered although all services are ready");
            sleep(Duration::from_millis(10)).await;
        }
        let took = since.elapsed();
        self.slowest.recovery = self.slowest.recovery.max(took);
        ensure!(took <= RECOVERY, "the town recovered only after {took:?}");
        Ok(())
    }
}
