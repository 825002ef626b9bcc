//! What the process uses, as metrics with the usual names (prometheus.io, "Writing client libraries", "Process metrics"). The collector of
//! the `prometheus` crate brings procfs and a second rustix for it.

use std::fs;
use std::sync::LazyLock;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeVal;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

use crate::clock::Clock;

/// In seconds of the Unix epoch.
static STARTED: LazyLock<f64> = LazyLock::new(|| Clock::system().now().micros() as f64 / 1e6);

pub(crate) struct ProcessUsage {
    cpu: Counter,
    /// Each with what it shows now. What the system does not say is 0.
    gauges: [(Gauge, fn() -> f64); 6],
}

impl ProcessUsage {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        LazyLock::force(&STARTED);
        let gauge = |name, help, read| Ok::<_, prometheus::Error>((Gauge::new(name, help)?, read));
        Ok(Self {
            cpu: Counter::new("process_cpu_seconds_total", "User and system time of the processors, in seconds.")?,
            gauges: [
                gauge("process_open_fds", "Open files and sockets.", open_files as fn() -> f64)?,
                gauge("process_max_fds", "How many files and sockets may be open.", most_files)?,
                gauge("process_virtual_memory_bytes", "Virtual memory.", || status("VmSize:") * 1024.0)?,
                gauge("process_resident_memory_bytes", "Memory that is in use.", || status("VmRSS:") * 1024.0)?,
                gauge("process_threads", "Threads.", || status("Threads:"))?,
                gauge("process_start_time_seconds", "When it started, in seconds of the Unix epoch.", || *STARTED)?,
            ],
        })
    }
}

impl Collector for ProcessUsage {
    fn desc(&self) -> Vec<&Desc> {
        self.cpu.desc().into_iter().chain(self.gauges.iter().flat_map(|(gauge, _)| gauge.desc())).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // A counter only grows; two scrapes at once may each add a little, which the next one does not.
        self.cpu.inc_by((processor_seconds() - self.cpu.get()).max(0.0));
        for (gauge, read) in &self.gauges {
            gauge.set(read());
        }
        self.cpu.collect().into_iter().chain(self.gauges.iter().flat_map(|(gauge, _)| gauge.collect())).collect()
    }
}

fn processor_seconds() -> f64 {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn open_files() -> f64 {
    // `/dev/fd` is there on macOS too. One of them is the folder that is read.
    fs::read_dir("/dev/fd").map_or(0.0, |files| files.count().saturating_sub(1) as f64)
}

fn most_files() -> f64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0.0, |(soft, _)| soft as f64)
}

/// A line of `/proc/self/status` (proc_pid_status(5)), which counts memory in KiB.
fn status(name: &str) -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_shows_what_this_process_uses() {
        let usage = ProcessUsage::new().unwrap();
        let value = |name: &str| {
            let families = usage.collect();
            let found = families.iter().find(|family| family.name() == name).unwrap();
            let metric = &found.get_metric()[0];
            metric.get_counter().get_value().max(metric.get_gauge().get_value())
        };
        let files = value("process_open_fds");
        let held: Vec<_> = (0..10).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        // Other tests of this program open and close files too.
        assert!(files >= 3.0 && value("process_open_fds") >= held.len() as f64 + 3.0);
        assert!(value("process_max_fds") > files && value("process_threads") >= 1.0);
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 1e6 && resident <= value("process_virtual_memory_bytes"));
        let before = value("process_cpu_seconds_total");
        let mut work = 1_u64;
        while processor_seconds() < before + 0.02 {
            work = std::hint::black_box(work.wrapping_mul(31));
        }
        assert!(value("process_cpu_seconds_total") >= before + 0.02);
        assert!(value("process_start_time_seconds") > 1.7e9);
    }
}
