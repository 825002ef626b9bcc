//! Metrics of the gateway. Labels are bounded: never an id, a text or a name, except those that an operator gives to endpoints.

use std::time::Duration;

use ensemble_chassis::metrics::Metrics;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

#[derive(Clone)]
pub(crate) struct VoiceMetrics {
    starts: IntCounterVec,
    time_to_agent: Histogram,
    time_to_active: Histogram,
    livekit: HistogramVec,
    deliveries: IntCounterVec,
    queued_texts: IntGauge,
    live_sessions: IntGauge,
    redispatches: IntCounter,
    silent_agents: IntCounter,
    ends: IntCounterVec,
    webhooks: IntCounterVec,
    webhooks_sent: IntCounterVec,
    webhooks_waiting: IntGaugeVec,
    webhooks_age: IntGaugeVec,
    agent_events: IntCounterVec,
    tool_calls: IntCounterVec,
}

const SECONDS: &[f64] = &[0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0];
const CALLS: &[f64] = &[0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 8.0];

impl VoiceMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let registry = metrics.registry();
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let histogram = |name: &str, help: &str| {
            let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            let gauge = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let calls = HistogramOpts::new("voice_livekit_call_duration_seconds", "Calls to LiveKit by method and result.");
        let livekit = HistogramVec::new(calls.buckets(CALLS.to_vec()), &["method", "result"])?;
        registry.register(Box::new(livekit.clone()))?;
        let redispatches = IntCounter::new("voice_agent_redispatches_total", "Agents that were dispatched again.")?;
        registry.register(Box::new(redispatches.clone()))?;
        let silent_agents = IntCounter::new(
            "voice_agents_silent_total",
            "Agents whose heartbeats stopped and that did not answer, although LiveKit still listed them.",
        )?;
        registry.register(Box::new(silent_agents.clone()))?;
        Ok(Self {
            starts: counters("voice_starts_total", "Requests to start a voice session, by outcome.", &["outcome"])?,
            time_to_agent: histogram(
                "voice_time_to_agent_seconds",
                "From the creation of the room to the agent being ready.",
            )?,
            time_to_active: histogram(
                "voice_time_to_active_seconds",
                "From the start to the moment when person and agent are both there.",
            )?,
            livekit,
            deliveries: counters(
                "voice_deliveries_total",
                "Attempts to deliver texts and contexts to agents, by result.",
                &["kind", "result"],
            )?,
            queued_texts: gauge("voice_queued_texts", "Texts that have not reached their agents.")?,
            live_sessions: gauge("voice_live_sessions", "Voice sessions that are open.")?,
            redispatches,
            silent_agents,
            ends: counters("voice_ends_total", "Voice sessions that ended, by reason.", &["reason"])?,
            webhooks: counters("voice_webhooks_total", "Webhooks of LiveKit, by result.", &["result"])?,
            webhooks_sent: counters(
                "voice_webhook_deliveries_total",
                "Tries to send a webhook to an endpoint of the operator's, by how they ended.",
                &["endpoint", "outcome"],
            )?,
            webhooks_waiting: gauges(
                "voice_webhook_deliveries_waiting",
                "Webhooks that an endpoint still has to get.",
                &["endpoint"],
            )?,
            webhooks_age: gauges(
                "voice_webhook_oldest_seconds",
                "For how long the oldest of them has waited.",
                &["endpoint"],
            )?,
            agent_events: counters("voice_agent_events_total", "Events from agents, by type.", &["type"])?,
            tool_calls: counters("voice_tool_calls_total", "Calls of the agents' tools, by tool.", &["tool"])?,
        })
    }

    pub(crate) fn started(&self, outcome: &str) {
        self.starts.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn agent_became_ready(&self, after: Duration) {
        self.time_to_agent.observe(after.as_secs_f64());
    }

    pub(crate) fn became_active(&self, after: Duration) {
        self.time_to_active.observe(after.as_secs_f64());
    }

    pub(crate) fn livekit_call(&self, method: &str, result: &str, took: Duration) {
        self.livekit.with_label_values(&[method, result]).observe(took.as_secs_f64());
    }

    pub(crate) fn delivery(&self, kind: &str, result: &str) {
        self.deliveries.with_label_values(&[kind, result]).inc();
    }

    pub(crate) fn set_gauges(&self, live_sessions: i64, queued_texts: i64) {
        self.live_sessions.set(live_sessions);
        self.queued_texts.set(queued_texts);
    }

    pub(crate) fn redispatched(&self) {
        self.redispatches.inc();
    }

    pub(crate) fn agent_was_silent(&self) {
        self.silent_agents.inc();
    }

    pub(crate) fn ended(&self, reason: &str) {
        self.ends.with_label_values(&[reason]).inc();
    }

    pub(crate) fn webhook(&self, result: &str) {
        self.webhooks.with_label_values(&[result]).inc();
    }

    pub(crate) fn webhook_sent(&self, endpoint: &str, outcome: &str) {
        self.webhooks_sent.with_label_values(&[endpoint, outcome]).inc();
    }

    pub(crate) fn set_webhooks_waiting(&self, endpoint: &str, waiting: i64, age_seconds: u64) {
        self.webhooks_waiting.with_label_values(&[endpoint]).set(waiting);
        self.webhooks_age.with_label_values(&[endpoint]).set(i64::try_from(age_seconds).unwrap_or(i64::MAX));
    }

    pub(crate) fn tool_call(&self, tool: &str) {
        self.tool_calls.with_label_values(&[tool]).inc();
    }

    pub(crate) fn agent_event(&self, kind: &str) {
        self.agent_events.with_label_values(&[kind]).inc();
    }
}
