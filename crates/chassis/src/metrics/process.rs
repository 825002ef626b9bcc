//! What the process itself uses: memory, files, processor time; and what became of its spans.
//!
//! Read from `/proc` when Prometheus asks; elsewhere than on Linux there is nothing to read and nothing is reported.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Opts};

use crate::process::telemetry::span_counts;

/// Ticks a second of the times in `/proc/self/stat` (proc_pid_stat(5)); Linux has not used another value for user space.
const TICKS: f64 = 100.0;
const PAGE: f64 = 4096.0;

/// One process may be many services, each of which reports the same.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    memory: Gauge,
    processor: Gauge,
    threads: Gauge,
    files: Gauge,
    files_limit: Gauge,
    /// Set once: when these metrics were made.
    started: Gauge,
    spans_sent: Gauge,
    spans_lost: Gauge,
}

impl ProcessCollector {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| Gauge::with_opts(Opts::new(name, help));
        let started = gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")?;
        started.set(crate::Clock::system().now().unix_seconds() as f64);
        Ok(Self {
            started,
            memory: gauge("process_resident_memory_bytes", "Memory that the process holds.")?,
            processor: gauge("process_cpu_seconds_total", "Processor time that the process used.")?,
            threads: gauge("process_threads", "Threads of the process.")?,
            files: gauge("process_open_fds", "Files and sockets that are open.")?,
            files_limit: gauge("process_max_fds", "Files and sockets that may be open.")?,
            spans_sent: gauge("spans_sent_total", "Spans that the collector took.")?,
            spans_lost: gauge("spans_lost_total", "Spans that the collector did not take.")?,
        })
    }

    fn gauges(&self) -> [&Gauge; 8] {
        [
            &self.memory,
            &self.processor,
            &self.threads,
            &self.files,
            &self.files_limit,
            &self.started,
            &self.spans_sent,
            &self.spans_lost,
        ]
    }

    fn read(&self) {
        if let Some(stat) = Stat::read() {
            self.memory.set(stat.resident_pages * PAGE);
            self.processor.set(stat.ticks / TICKS);
            self.threads.set(stat.threads);
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            self.files.set(files.count() as f64);
        }
        if let Some(limit) = files_limit() {
            self.files_limit.set(limit);
        }
        let spans = span_counts();
        self.spans_sent.set(spans.sent as f64);
        self.spans_lost.set(spans.lost as f64);
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        self.gauges().into_iter().flat_map(Collector::collect).collect()
    }
}

/// The fields of `/proc/self/stat` that matter here.
struct Stat {
    ticks: f64,
    threads: f64,
    resident_pages: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// The name of the program is in parentheses and may hold anything; what follows are numbers, the first of them
    /// field 3 of proc_pid_stat(5).
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field.checked_sub(3)?)?.parse::<f64>().ok();
        Some(Self { ticks: number(14)? + number(15)?, threads: number(20)?, resident_pages: number(24)? })
    }
}

fn files_limit() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_hold_anything() {
        let text = "7 (a ) b 9) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 12 0 99 1000 256 18446744073709551615 1";
        let stat = Stat::parse(text).expect("a line of numbers");
        assert_eq!((stat.ticks, stat.threads, stat.resident_pages), (200.0, 12.0, 256.0));
        assert!(Stat::parse("7 (cut off").is_none());
    }
}
