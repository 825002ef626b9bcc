//! The durations of the runner.

use std::time::Duration;

use ensemble_host::Backoff;
use serde::Deserialize;

/// Intervals and timeouts. The configuration file gives them in milliseconds: `leaseBeatMs` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timing {
    /// The interval of an attempt's heartbeats. The first is sent at once. A lease expires after 30 s.
    #[serde(rename = "leaseBeatMs", with = "millis")]
    pub lease_beat: Duration,
    /// The interval of the machine's heartbeats. A machine counts as online for 60 s.
    #[serde(rename = "machineBeatMs", with = "millis")]
    pub machine_beat: Duration,
    /// How long the server may hold a lease request open.
    #[serde(rename = "leaseWaitMs", with = "millis")]
    pub lease_wait: Duration,
    /// Between TERM and KILL, also when the runner dies. A program that ignores TERM is dead within 5 s of the runner's
    /// death, and within 15 s of a cancel, which the next heartbeat reports. Both leave 2 s for a busy machine.
    #[serde(rename = "termGraceMs", with = "millis")]
    pub term_grace: Duration,
    /// Between TERM and KILL for processes that are left after the program has exited.
    #[serde(rename = "leftoverGraceMs", with = "millis")]
    pub leftover_grace: Duration,
    /// Between TERM and KILL when another runner may already have the task.
    #[serde(rename = "lostGraceMs", with = "millis")]
    pub lost_grace: Duration,
    /// How long attempts may continue after the runner was asked to stop. Then they are handed back.
    #[serde(rename = "drainGraceMs", with = "millis")]
    pub drain_grace: Duration,
    /// How long the turns of sessions may continue after the runner was asked to stop. Then they are interrupted.
    #[serde(rename = "turnGraceMs", with = "millis")]
    pub turn_grace: Duration,
    /// How long a turn continues while no program hosts its session, with an agent that can (codex). Then it is ended.
    #[serde(rename = "leftAloneMs", with = "millis")]
    pub left_alone: Duration,
    /// How long an agent may take until it is ready for the prompt. Then it is ended.
    #[serde(rename = "readyWithinMs", with = "millis")]
    pub ready_within: Duration,
    /// How long the agent of a session may continue after an interrupt. Then it is ended.
    #[serde(rename = "interruptedWithinMs", with = "millis")]
    pub interrupted_within: Duration,
    /// An agent that is idle for this long is ended, and started again by the next prompt.
    #[serde(rename = "parkAfterMs", with = "millis")]
    pub park_after: Duration,
    /// A session that has ended, and was not written to for this long, is not hosted until it is written to.
    #[serde(rename = "restAfterMs", with = "millis")]
    pub rest_after: Duration,
    /// How long a runner that only hosts sessions stays after the last one.
    #[serde(rename = "lingerMs", with = "millis")]
    pub linger: Duration,
    /// How long a stopping runner tries to deliver its reports. The next start delivers the rest.
    #[serde(rename = "deliverGraceMs", with = "millis")]
    pub deliver_grace: Duration,
    /// How long the owner's program has to make a session's next key after a share was removed. Then this machine makes one.
    #[serde(rename = "rekeyGraceMs", with = "millis")]
    pub rekey_grace: Duration,
    /// The first and the longest pause before a call is retried.
    #[serde(rename = "backoffFirstMs", with = "millis")]
    pub backoff_first: Duration,
    #[serde(rename = "backoffLongestMs", with = "millis")]
    pub backoff_longest: Duration,
    /// The minimum time between two pieces of output of one attempt.
    #[serde(rename = "outputIntervalMs", with = "millis")]
    pub output_interval: Duration,
    /// The timeout of a call to the server.
    #[serde(rename = "answerWithinMs", with = "millis")]
    pub answer_within: Duration,
    /// How long a refused token is retried, because the refusal may be temporary. Then the attempts are ended.
    #[serde(rename = "refusedGraceMs", with = "millis")]
    pub refused_grace: Duration,
    /// How long a look at this machine may take.
    #[serde(rename = "lookWithinMs", with = "millis")]
    pub look_within: Duration,
    /// How often the runner checks for programs that were installed or removed.
    #[serde(rename = "lookForProgramsMs", with = "millis")]
    pub look_for_programs: Duration,
}

impl Timing {
    /// The pauses before a call is retried.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.backoff_first, self.backoff_longest)
    }

    /// What the host gets of it.
    pub(super) fn of_host(&self) -> ensemble_host::Timing {
        ensemble_host::Timing {
            ready_within: self.ready_within,
            interrupted_within: self.interrupted_within,
            turn_grace: self.turn_grace,
            left_alone: self.left_alone,
            park_after: self.park_after,
            rest_after: self.rest_after,
            linger: self.linger,
            deliver_grace: self.deliver_grace,
            rekey_grace: self.rekey_grace,
            refused_grace: self.refused_grace,
            look_within: self.look_within,
            backoff: self.backoff(),
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        let host = ensemble_host::Timing::default();
        Self {
            lease_beat: Duration::from_secs(10),
            machine_beat: Duration::from_secs(20),
            lease_wait: Duration::from_secs(50),
            term_grace: Duration::from_secs(3),
            leftover_grace: Duration::from_secs(2),
            lost_grace: Duration::from_secs(2),
            drain_grace: Duration::from_secs(60),
            turn_grace: host.turn_grace,
            left_alone: host.left_alone,
            ready_within: host.ready_within,
            interrupted_within: host.interrupted_within,
            park_after: host.park_after,
            rest_after: host.rest_after,
            linger: host.linger,
            deliver_grace: host.deliver_grace,
            rekey_grace: host.rekey_grace,
            backoff_first: host.backoff.first,
            backoff_longest: host.backoff.longest,
            output_interval: Duration::from_millis(100),
            answer_within: Duration::from_secs(10),
            refused_grace: host.refused_grace,
            look_within: host.look_within,
            look_for_programs: Duration::from_secs(60),
        }
    }
}

mod millis {
    //! A duration as a number of milliseconds.

    use std::time::Duration;

    use serde::{Deserialize, Deserializer};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
