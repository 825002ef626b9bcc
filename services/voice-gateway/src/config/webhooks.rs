//! The operator's endpoints, and the limits for deliveries to them.

use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_chassis::outward::TrustedOrigins;
use secrecy::ExposeSecret;

use super::timing::seconds;
use crate::domain::endpoint::Endpoints;

pub(crate) struct WebhookConfig {
    pub(crate) endpoints: Endpoints,
    pub(crate) trusted: TrustedOrigins,
    /// For a whole call.
    pub(crate) timeout: Duration,
    pub(crate) first_wait: Duration,
}

impl WebhookConfig {
    pub(super) fn read(vars: &mut Vars) -> Self {
        let trusted = TrustedOrigins::new(vars.list(
            "VOICE_WEBHOOK_TRUSTED_ORIGINS",
            "origins of VOICE_WEBHOOKS that may be private or plain http, as in http://10.0.0.5:9000",
            "",
        ));
        let text = vars.optional_secret(
            "VOICE_WEBHOOKS",
            "endpoints that receive events of voice sessions, one on each line or separated by semicolons: a name, an https address, a secret (whsec_…), and the previous secret while it is being replaced",
        );
        let give_up = seconds(
            vars,
            "VOICE_WEBHOOK_GIVE_UP_SECONDS",
            "how long a webhook is tried before it is dropped",
            86_400.0,
        );
        let endpoints = text.map(|text| Endpoints::read(text.expose_secret(), &trusted, give_up)).transpose();
        let endpoints = endpoints.unwrap_or_else(|error| {
            vars.add_error("VOICE_WEBHOOKS", &error.to_string());
            None
        });
        Self {
            endpoints: endpoints.unwrap_or_default(),
            trusted,
            timeout: vars.millis("VOICE_WEBHOOK_TIMEOUT_MS", "how long an endpoint may take to answer", 15_000),
            first_wait: vars.millis(
                "VOICE_WEBHOOK_RETRY_MS",
                "first pause after a webhook was not taken; it doubles, up to an hour",
                5_000,
            ),
        }
    }
}
