//! Times, limits and rates.

use std::time::Duration;

use ensemble_chassis::Vars;

use super::LiveKitConfig;
use crate::domain::limits::Limits;
use crate::domain::state::Rules;

/// Per minute where no other time is named; zero means "no limit".
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) per_key: u32,
    pub(crate) per_user: u32,
    pub(crate) per_address: u32,
    pub(crate) wrong_keys: u32,
    /// Texts and contexts of one session.
    pub(crate) injections: u32,
    /// Calls of the tools by one session's agent.
    pub(crate) tool_calls: u32,
    /// Other calls of one session's agent, per second.
    pub(crate) agent_calls: u32,
}

#[derive(Clone)]
pub(crate) struct TimingConfig {
    pub(crate) reconcile: Duration,
    pub(crate) sweep: Duration,
    pub(crate) keep: Duration,
    /// How long after the end of a session what was said in it is kept.
    pub(crate) keep_transcript: Duration,
    /// Before a status is answered, LiveKit is asked if the last observation is older than this.
    pub(crate) fresh: Duration,
    pub(crate) fresh_budget: Duration,
    /// How long `stop` waits for LiveKit.
    pub(crate) stop_budget: Duration,
    /// How long a repeated start waits for the first one.
    pub(crate) replay_timeout: Duration,
}

pub(super) fn rules(vars: &mut Vars) -> Rules {
    let create = vars.millis("VOICE_CREATE_GIVE_UP_MS", "a start that has not gone live after this has failed", 15_000);
    Rules {
        agent_join: seconds(
            vars,
            "VOICE_AGENT_JOIN_TIMEOUT_SECONDS",
            "an agent that has not joined by then is dispatched again",
            10.0,
        ),
        agent_gone: vars.millis("VOICE_AGENT_GONE_GRACE_MS", "from an agent's loss to dispatching another", 1_000),
        agent_ask: vars.millis(
            "VOICE_AGENT_ASK_MS",
            "how often an agent that joined is checked until it is ready",
            2_000,
        ),
        agent_ready: seconds(
            vars,
            "VOICE_AGENT_READY_TIMEOUT_SECONDS",
            "an agent that has not reported ready by then counts as ready",
            20.0,
        ),
        agent_stable: seconds(
            vars,
            "VOICE_AGENT_STABLE_SECONDS",
            "an agent that was ready for so long resets the count of re-dispatches",
            60.0,
        ),
        agent_silent: seconds(
            vars,
            "VOICE_AGENT_SILENT_SECONDS",
            "an agent whose heartbeats stop for so long is asked whether it is there, and replaced when it does not answer; 0: none are asked for",
            6.0,
        ),
        max_dispatches: vars.parse("VOICE_AGENT_MAX_DISPATCHES", "how often an agent is dispatched again", 3),
        human_join: seconds(vars, "VOICE_EMPTY_TIMEOUT_SECONDS", "how long a room waits for its person", 120.0),
        human_return: seconds(
            vars,
            "VOICE_DEPARTURE_TIMEOUT_SECONDS",
            "how long a person who was cut off may take to return",
            30.0,
        ),
        create,
        settle: vars.millis("VOICE_SETTLE_MS", "how far LiveKit's lists may lag behind", 5_000),
        delete_retry: vars.millis(
            "VOICE_DELETE_RETRY_MS",
            "first pause between attempts to delete a room; it doubles four times",
            2_000,
        ),
    }
}

pub(super) fn limits(vars: &mut Vars) -> Limits {
    let session = seconds(vars, "VOICE_MAX_SESSION_SECONDS", "how long a voice session may last", 3600.0);
    let user_sessions = vars.parse("VOICE_MAX_SESSIONS_PER_USER", "open at once, per user; 0: no limit", 2);
    let total_sessions = vars.parse("VOICE_MAX_SESSIONS", "open at once, in all; 0: no limit", 1_000);
    let unproven_sessions = vars.parse(
        "VOICE_MAX_SESSIONS_UNPROVEN",
        "open at once without a user's token; default: 3/4 of VOICE_MAX_SESSIONS; 0: no limit of their own",
        three_quarters(total_sessions),
    );
    let user_daily_seconds =
        vars.parse("VOICE_DAILY_SECONDS_PER_USER", "seconds of voice per day (UTC) and user; 0: no limit", 14_400);
    let total_daily_seconds =
        vars.parse("VOICE_DAILY_SECONDS", "seconds of voice per day (UTC) in all; 0: no limit", 0);
    let unproven_daily_seconds = vars.parse(
        "VOICE_DAILY_SECONDS_UNPROVEN",
        "seconds per day without a user's token; default: 3/4 of VOICE_DAILY_SECONDS; 0: no limit of their own",
        three_quarters(total_daily_seconds),
    );
    Limits {
        session,
        user_sessions,
        total_sessions,
        user_daily_seconds,
        total_daily_seconds,
        unproven_sessions,
        unproven_daily_seconds,
    }
}

/// Rounded up, so that a limit of one or two is not none.
fn three_quarters(limit: u64) -> u64 {
    limit - limit / 4
}

pub(super) fn rates(vars: &mut Vars) -> Rates {
    Rates {
        per_key: vars.parse(
            "VOICE_STARTS_PER_MINUTE_PER_KEY",
            "starts per minute and voice key, on each replica; 0: no limit",
            600,
        ),
        per_user: vars.parse(
            "VOICE_STARTS_PER_MINUTE_PER_USER",
            "starts per minute and user, on each replica; 0: no limit",
            20,
        ),
        per_address: vars.parse(
            "VOICE_STARTS_PER_MINUTE_PER_ADDRESS",
            "starts per minute and address, on each replica; 0: no limit",
            60,
        ),
        wrong_keys: vars.parse(
            "VOICE_WRONG_KEYS_PER_MINUTE",
            "wrong voice keys and credentials of agents per minute and address before 429; 0: no limit",
            60,
        ),
        injections: vars.parse(
            "VOICE_INJECTIONS_PER_MINUTE",
            "texts and contexts per minute and voice session, on each replica; 0: no limit",
            600,
        ),
        tool_calls: vars.parse(
            "VOICE_TOOL_CALLS_PER_MINUTE",
            "calls of the agent's tools per minute and voice session, on each replica; 0: no limit",
            30,
        ),
        agent_calls: vars.parse(
            "VOICE_AGENT_CALLS_PER_SECOND",
            "calls of the agent per second and voice session, on each replica; 0: no limit",
            20,
        ),
    }
}

pub(super) fn timing(vars: &mut Vars, livekit: &LiveKitConfig) -> TimingConfig {
    TimingConfig {
        reconcile: seconds(vars, "VOICE_RECONCILE_SECONDS", "how often all rooms are compared with LiveKit", 15.0),
        sweep: vars.millis("VOICE_SWEEP_MS", "how often timers query the database when nothing wakes them", 5_000),
        keep: seconds(vars, "VOICE_KEEP_SECONDS", "how long the records of ended sessions are kept", 2_592_000.0),
        keep_transcript: seconds(
            vars,
            "VOICE_TRANSCRIPT_KEEP_SECONDS",
            "how long what was said is kept after the end of its session",
            600.0,
        ),
        fresh: vars.millis(
            "VOICE_STATUS_FRESH_MS",
            "LiveKit is asked before a status is answered if the last observation is older",
            5_000,
        ),
        fresh_budget: vars.millis("VOICE_STATUS_BUDGET_MS", "how long a status waits for LiveKit", 1_000),
        stop_budget: vars
            .millis("VOICE_STOP_BUDGET_MS", "how long stop waits for LiveKit", 2_000)
            .min(livekit.budgets.delete),
        replay_timeout: vars.millis(
            "VOICE_REPLAY_TIMEOUT_MS",
            "how long a repeated start waits for the first one",
            5_000,
        ),
    }
}

/// Seconds, with a fraction if need be, so that tests can shorten them.
pub(super) fn seconds(vars: &mut Vars, name: &str, meaning: &str, default: f64) -> Duration {
    let value = vars.parse(name, meaning, default);
    Duration::try_from_secs_f64(value).unwrap_or_else(|_| {
        vars.add_error(name, "must be seconds, not below zero");
        Duration::from_secs_f64(default)
    })
}
