//! Counts sign-ins, open challenges and keys. Labels are outcomes and never an account, so their number is bounded.

use std::sync::Arc;

use ensemble_chassis::metrics::Metrics;
use prometheus::{IntCounterVec, Opts};

use crate::domain::Registration;
use crate::keys::KeyRing;
use crate::operations::pushes;
use crate::operations::sign_in::{OpenChallenges, Outcome};

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct IdentityMetrics {
    sign_ins: IntCounterVec,
    pushes: IntCounterVec,
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
        let pushes = Opts::new("identity_pushes_total", "Tries to send a notification, by how they ended.");
        let pushes = IntCounterVec::new(pushes, &["outcome"])?;
        metrics.registry().register(Box::new(pushes.clone()))?;
        let open = Arc::clone(challenges);
        metrics.reading(
            "identity_challenges_open",
            "About how many challenges were given and not used.",
            &[],
            move || open.get() as f64,
        )?;
        let keys = Arc::clone(ring);
        metrics.reading("identity_signing_keys", "Signing keys that verify.", &[], move || keys.size().0 as f64)?;
        let revoked = Arc::clone(ring);
        metrics.reading("identity_revoked_tokens", "Revoked tokens that have not expired.", &[], move || {
            revoked.size().1 as f64
        })?;
        let removed = Arc::clone(ring);
        let what = "Removed devices whose tokens have not all expired.";
        metrics.reading("identity_removed_devices", what, &[], move || removed.size().2 as f64)?;
        let age = Arc::clone(ring);
        metrics.reading(
            "identity_keys_age_seconds",
            "Seconds since keys and revocations were loaded.",
            &[],
            move || age.age().as_secs_f64(),
        )?;
        Ok(Self { sign_ins, pushes })
    }

    pub(crate) fn pushed(&self, outcome: pushes::Outcome) {
        let outcome = match outcome {
            pushes::Outcome::Sent => "sent",
            pushes::Outcome::Gone => "gone",
            pushes::Outcome::Refused => "refused",
            pushes::Outcome::Later => "later",
            pushes::Outcome::Expired => "expired",
        };
        self.pushes.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn signed_in(&self, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::SignedIn { is_new: true, .. } => "new_account",
            Outcome::SignedIn { .. } => "in",
            Outcome::Refused => "refused",
            Outcome::DeviceRemoved => "device_removed",
            Outcome::Unknown => "unknown",
            Outcome::NoAccount(Registration::Limited(_)) => "too_many_accounts",
            Outcome::NoAccount(_) => "registration_closed",
        };
        self.sign_ins.with_label_values(&[outcome]).inc();
    }
}
