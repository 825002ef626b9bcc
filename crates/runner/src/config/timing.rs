//! Every duration of the runner.

use std::time::Duration;

use serde::Deserialize;

/// How long and how often. In the configuration file: milliseconds, as `leaseBeatMs` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timing {
    /// Between two heartbeats of an attempt; the first is sent at once. A lease lives 30 s.
    #[serde(rename = "leaseBeatMs", with = "millis")]
    pub lease_beat: Duration,
    /// Between two heartbeats of the machine, which counts as online for 60 s.
    #[serde(rename = "machineBeatMs", with = "millis")]
    pub machine_beat: Duration,
    /// How long the server may hold a request for leases back.
    #[serde(rename = "leaseWaitMs", with = "millis")]
    pub lease_wait: Duration,
    /// Between TERM and KILL.
    #[serde(rename = "termGraceMs", with = "millis")]
    pub term_grace: Duration,
    /// The same, for what a program leaves behind when it has ended by itself.
    #[serde(rename = "leftoverGraceMs", with = "millis")]
    pub leftover_grace: Duration,
    /// Between TERM and KILL when another machine may be making the attempt already.
    #[serde(rename = "lostGraceMs", with = "millis")]
    pub lost_grace: Duration,
    /// How long a runner that was told to stop lets its attempts go on before it hands them back.
    #[serde(rename = "drainGraceMs", with = "millis")]
    pub drain_grace: Duration,
    /// How long a runner that stops tries to deliver its reports; the next start goes on with them.
    #[serde(rename = "deliverGraceMs", with = "millis")]
    pub deliver_grace: Duration,
    /// The first and the longest pause before a call is tried again.
    #[serde(rename = "backoffFirstMs", with = "millis")]
    pub backoff_first: Duration,
    #[serde(rename = "backoffLongestMs", with = "millis")]
    pub backoff_longest: Duration,
    /// The least time between two pieces of output of one attempt.
    #[serde(rename = "outputIntervalMs", with = "millis")]
    pub output_interval: Duration,
    /// How long the server has to answer.
    #[serde(rename = "answerWithinMs", with = "millis")]
    pub answer_within: Duration,
    /// How long a refused token is believed to be a mistake. Then the attempts are ended.
    #[serde(rename = "refusedGraceMs", with = "millis")]
    pub refused_grace: Duration,
    /// Between two looks for programs that have been installed or removed.
    #[serde(rename = "lookForProgramsMs", with = "millis")]
    pub look_for_programs: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_beat: Duration::from_secs(10),
            machine_beat: Duration::from_secs(20),
            lease_wait: Duration::from_secs(50),
            term_grace: Duration::from_secs(10),
            leftover_grace: Duration::from_secs(2),
            lost_grace: Duration::from_secs(5),
            drain_grace: Duration::from_secs(60),
            deliver_grace: Duration::from_secs(10),
            backoff_first: Duration::from_millis(250),
            backoff_longest: Duration::from_secs(5),
            output_interval: Duration::from_millis(100),
            answer_within: Duration::from_secs(10),
            refused_grace: Duration::from_secs(60),
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
