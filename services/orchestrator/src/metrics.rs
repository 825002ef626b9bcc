//! Metrics of runs and leases. Labels have few values: statuses and results, never an account.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ensemble_chassis::metrics::Metrics;
use ensemble_types::leases::FinishStatus;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts};

use crate::operations::runs::Unfinished;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunMetrics {
    waiting: Arc<AtomicUsize>,
    granted: IntCounter,
    wake_to_grant: Histogram,
    grant: Histogram,
    ends: IntCounterVec,
    machine_losses: IntCounter,
    tasks: IntGaugeVec,
}

/// Counts a runner as waiting until it is dropped.
pub(crate) struct WaitingRunner(Arc<AtomicUsize>);

impl RunMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let registry = metrics.registry();
        let times = vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
        let histogram = |name: &str, help: &str| {
            let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(times.clone()))?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let waiting = Arc::<AtomicUsize>::default();
        let current = Arc::clone(&waiting);
        metrics.reading("lease_runners_waiting", "Runners that wait for tasks at this replica.", &[], move || {
            current.load(Ordering::Relaxed) as f64
        })?;
        let granted = IntCounter::new("leases_granted_total", "Leases that were granted to runners.")?;
        registry.register(Box::new(granted.clone()))?;
        let ends = Opts::new("lease_finishes_total", "Reports of finished attempts, by status.");
        let ends = IntCounterVec::new(ends, &["status"])?;
        registry.register(Box::new(ends.clone()))?;
        let machine_losses = IntCounter::new("machine_losses_total", "Leases that expired while their attempts ran.")?;
        registry.register(Box::new(machine_losses.clone()))?;
        let tasks = Opts::new("orchestrator_unfinished", "Unfinished runs, their tasks by status, and open leases.");
        let tasks = IntGaugeVec::new(tasks, &["what"])?;
        registry.register(Box::new(tasks.clone()))?;
        Ok(Self {
            waiting,
            granted,
            wake_to_grant: histogram(
                "lease_wake_to_grant_seconds",
                "From the notification of a waiting runner to its lease.",
            )?,
            grant: histogram("lease_grant_seconds", "Time to grant leases, or to find that no task is ready.")?,
            ends,
            machine_losses,
            tasks,
        })
    }

    pub(crate) fn runner_waiting(&self) -> WaitingRunner {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingRunner(Arc::clone(&self.waiting))
    }

    pub(crate) fn granted(&self, leases: usize, took: Duration, since_notified: Option<Duration>) {
        self.grant.observe(took.as_secs_f64());
        if leases == 0 {
            return;
        }
        self.granted.inc_by(u64::try_from(leases).unwrap_or(0));
        if let Some(notified) = since_notified {
            self.wake_to_grant.observe(notified.as_secs_f64());
        }
    }

    pub(crate) fn finished(&self, status: FinishStatus) {
        let status = match status {
            FinishStatus::Completed => "completed",
            FinishStatus::Failed => "failed",
            FinishStatus::Cancelled => "cancelled",
            FinishStatus::Timeout => "timeout",
            FinishStatus::Refused => "refused",
            FinishStatus::Quota => "quota",
        };
        self.ends.with_label_values(&[status]).inc();
    }

    pub(crate) fn machines_lost(&self, machines: usize) {
        self.machine_losses.inc_by(u64::try_from(machines).unwrap_or(0));
    }

    pub(crate) fn set_unfinished(&self, unfinished: Unfinished) {
        for (what, count) in [
            ("runs", unfinished.runs),
            ("tasks_queued", unfinished.queued),
            ("tasks_ready", unfinished.ready),
            ("tasks_running", unfinished.running),
            ("leases", unfinished.leases),
        ] {
            self.tasks.with_label_values(&[what]).set(count);
        }
    }
}

impl Drop for WaitingRunner {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
