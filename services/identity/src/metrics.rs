//! How many sign in, and what is kept to decide it. Labels are bounded: outcomes, never an account.

use std::sync::Arc;

use ensemble_chassis::metrics::Metrics;
use prometheus::{IntCounterVec, Opts};

use crate::keys::KeyRing;
use crate::store::SignInOutcome;
use crate::{OpenChallenges, domain::Newcomers};

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct IdentityMetrics {
    sign_ins: IntCounterVec,
}

impl IdentityMetrics {
    pub(crate) fn new(
        metrics: &Metrics,
        ring: &Arc<KeyRing>,
        challenges: &Arc<OpenChallenges>,
    ) -> Result<Self, prometheus::Error> {
        let sign_ins = Opts::new("identity_sign_ins_total", "Sign-ins, by how they ended.");
        let sign_ins = IntCounterVec::new(sign_ins, &["outcome"])?;
        metrics.registry().register(Box::new(sign_ins.clone()))?;
        let open = Arc::clone(challenges);
        metrics.reading(
            "identity_challenges_open",
            "Challenges that were given out and not come back, about.",
            &[],
            move || open.count() as f64,
        )?;
        let keys = Arc::clone(ring);
        metrics.reading("identity_signing_keys", "Signing keys that verify.", &[], move || keys.size().0 as f64)?;
        let revoked = Arc::clone(ring);
        metrics.reading("identity_revoked_tokens", "Revoked tokens that have not expired.", &[], move || {
            revoked.size().1 as f64
        })?;
        let age = Arc::clone(ring);
        metrics.reading("identity_keys_age_seconds", "Since keys and revocations were last read.", &[], move || {
            age.age().as_secs_f64()
        })?;
        Ok(Self { sign_ins })
    }

    pub(crate) fn ended(&self, outcome: SignInOutcome) {
        let outcome = match outcome {
            SignInOutcome::In { is_new: true, .. } => "new_account",
            SignInOutcome::In { .. } => "in",
            SignInOutcome::Refused => "refused",
            SignInOutcome::TurnedAway(Newcomers::Later) => "too_many_accounts",
            SignInOutcome::TurnedAway(_) => "registration_closed",
        };
        self.sign_ins.with_label_values(&[outcome]).inc();
    }
}
