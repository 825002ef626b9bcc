//! The settings of the operator.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_chassis::Vars;
use ensemble_chassis::outward::TrustedOrigins;
use ensemble_rpc::Peer;
use ensemble_store_kit::{DatabaseConfig, database_config};

use crate::domain::{Origin, Registration, Schedule, TokenLifetimes};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

pub struct Config {
    /// `DATABASE_URL` and what goes with it.
    pub(crate) database: DatabaseConfig,
    /// `KEY_ENCRYPTION_KEY_FILE`
    pub(crate) key_file: PathBuf,
    /// `KEY_ENCRYPTION_KEY_PREVIOUS_FILE`
    pub(crate) previous_key_file: Option<PathBuf>,
    /// `KEY_ROTATE_MS`, `KEY_PUBLISH_BEFORE_MS`, `KEY_KEEP_MARGIN_MS`
    pub(crate) schedule: Schedule,
    /// `KEY_RING_REFRESH_MS`
    pub(crate) ring_refresh: Duration,
    /// `KEYS_TRUSTED_MS`
    pub(crate) keys_trusted_for: Duration,
    /// `SESSION_STORE_RPC_URL`: hints of changed devices go there.
    pub(crate) session_store: Peer,
    /// `PUSH_CONTACT`
    pub(crate) push_contact: Option<String>,
    /// `PUSH_TRUSTED_ORIGINS`
    pub(crate) push_trusted: TrustedOrigins,
    /// `SWEEP_MS`
    pub(crate) sweep_every: Duration,
    pub(crate) rules: Rules,
}

/// The rules that operations apply.
pub(crate) struct Rules {
    /// `PUBLIC_ORIGINS`
    pub(crate) origins: Vec<Origin>,
    /// `REGISTRATION`
    pub(crate) registration: Registration,
    /// `USER_TOKEN_MS`, `MACHINE_TOKEN_MAX_SECONDS`
    pub(crate) lifetimes: TokenLifetimes,
    /// `CHALLENGE_MS`
    pub(crate) challenge_lifetime: Duration,
    /// `DEVICE_LINK_MS`
    pub(crate) device_link_lifetime: Duration,
    /// `CHALLENGE_LIMIT`
    pub(crate) challenge_limit: i64,
    /// `MACHINE_TOKEN_LIMIT`
    pub(crate) machine_token_limit: i64,
}

impl Config {
    pub(crate) fn read(vars: &mut Vars) -> Self {
        let rules = Rules::read(vars);
        let rotate_every =
            vars.millis("KEY_ROTATE_MS", "how long a signing key signs before the next one does", 30 * DAY_MS);
        let publish_before =
            vars.millis("KEY_PUBLISH_BEFORE_MS", "how long a signing key is published before it signs", DAY_MS);
        if publish_before > rotate_every {
            vars.add_error("KEY_PUBLISH_BEFORE_MS", "must not be longer than KEY_ROTATE_MS");
        }
        let margin = vars.millis(
            "KEY_KEEP_MARGIN_MS",
            "how much longer a key is kept than the longest life of a token that it signed",
            600_000,
        );
        let keep_after = rules.lifetimes.longest() + margin;
        Self {
            database: database_config!(vars, "identity"),
            session_store: Peer::session_store(vars),
            push_contact: vars.optional(
                "PUSH_CONTACT",
                "mailto: or https: address at which push services reach the operator; Apple's wants one",
            ),
            push_trusted: TrustedOrigins::new(vars.list(
                "PUSH_TRUSTED_ORIGINS",
                "push services of your own that may be plain http or private, as in http://10.0.0.5:9000",
                "",
            )),
            key_file: vars
                .required("KEY_ENCRYPTION_KEY_FILE", "the file (0400) with the 32 bytes that seal the signing keys")
                .into(),
            previous_key_file: vars
                .optional(
                    "KEY_ENCRYPTION_KEY_PREVIOUS_FILE",
                    "the file that was used before, or will be next: what it sealed can be opened; may be absent",
                )
                .map(PathBuf::from)
                .filter(|path| path.exists()),
            schedule: Schedule { rotate_every, publish_before, keep_after },
            ring_refresh: vars.millis("KEY_RING_REFRESH_MS", "how often keys and revocations are loaded", 2_000),
            keys_trusted_for: vars.millis(
                "KEYS_TRUSTED_MS",
                "how long keys are trusted while the database cannot be reached",
                300_000,
            ),
            sweep_every: vars.millis("SWEEP_MS", "how often expired challenges and tokens are deleted", 1_000),
            rules,
        }
    }
}

impl Rules {
    fn read(vars: &mut Vars) -> Self {
        let origins = origins(vars);
        let registration = vars.text(
            "REGISTRATION",
            "open: a first sign-in makes an account; invite: with an invitation, the default where PUBLIC_BASE_URL or one of PUBLIC_ORIGINS is \
             not loopback; closed: only existing accounts sign in",
            if origins.iter().all(Origin::is_loopback) { "open" } else { "invite" },
        );
        let registration = match registration.as_str() {
            "open" => Registration::Open,
            "invite" => Registration::Invited,
            "closed" => Registration::Closed,
            _ => {
                vars.add_error("REGISTRATION", "must be open, invite or closed");
                Registration::Closed
            }
        };
        let user_ms = vars.millis("USER_TOKEN_MS", "how long a user's token lives", 3_600_000);
        let machine_max = vars.parse(
            "MACHINE_TOKEN_MAX_SECONDS",
            "how long a machine's token may live, which is also the default",
            7_776_000,
        );
        Self {
            origins,
            registration,
            lifetimes: TokenLifetimes { user: user_ms, machine_max_seconds: machine_max },
            challenge_lifetime: vars.millis("CHALLENGE_MS", "how long a challenge can be signed", 60_000),
            device_link_lifetime: vars.millis(
                "DEVICE_LINK_MS",
                "how long a device can be linked, and how long the end of a link can be read",
                600_000,
            ),
            challenge_limit: vars.parse("CHALLENGE_LIMIT", "challenges that may be open at once", 100_000),
            machine_token_limit: vars.parse(
                "MACHINE_TOKEN_LIMIT",
                "machine tokens of an account that have not expired, including revoked ones",
                1_000,
            ),
        }
    }
}

fn origins(vars: &mut Vars) -> Vec<Origin> {
    let base = vars.text("PUBLIC_BASE_URL", "where people reach the edge", "http://127.0.0.1:8080");
    // Of a base address with a path, the origin is what stands before the path.
    let base_origin: String = base.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let listed = vars.list(
        "PUBLIC_ORIGINS",
        "origins that a sign-in may be for, as clients call them; by default that of PUBLIC_BASE_URL",
        "",
    );
    let texts = if listed.is_empty() { vec![base_origin] } else { listed };
    let mut origins = Vec::with_capacity(texts.len());
    for text in texts {
        match text.parse() {
            Ok(origin) => origins.push(origin),
            Err(error) => vars.add_error("PUBLIC_ORIGINS", &format!("has {text:?}, which {error}")),
        }
    }
    origins
}
