//! The claims of tokens (RFC 9068, section 2.2).

use std::time::Duration;

use ensemble_chassis::auth::{
    AUDIENCE_MACHINE, AUDIENCE_RECOVERY, AUDIENCE_USER, Claims, DeviceKey, ISSUER, SCOPE_MACHINE, SCOPE_RECOVERY,
    SCOPE_USER,
};
use ensemble_types::ids::{TokenId, UserId};
use ensemble_types::time::Timestamp;

use crate::domain::MachineToken;

pub(super) fn of_user(user: UserId, device: DeviceKey, now: Timestamp, lifetime: Duration) -> Claims {
    Claims {
        iss: ISSUER.to_owned(),
        aud: AUDIENCE_USER.to_owned(),
        sub: user,
        jti: TokenId::generate(),
        iat: now.unix_seconds(),
        exp: now.plus(lifetime).unix_seconds(),
        scope: SCOPE_USER.to_owned(),
        machine_id: None,
        device: Some(device),
    }
}

pub(super) fn of_recovery(user: UserId, device: DeviceKey, now: Timestamp, lifetime: Duration) -> Claims {
    Claims {
        aud: AUDIENCE_RECOVERY.to_owned(),
        scope: SCOPE_RECOVERY.to_owned(),
        ..of_user(user, device, now, lifetime)
    }
}

pub(super) fn of_machine(token: &MachineToken, device: Option<DeviceKey>) -> Claims {
    Claims {
        iss: ISSUER.to_owned(),
        aud: AUDIENCE_MACHINE.to_owned(),
        sub: token.user,
        jti: token.id,
        iat: token.created_at.unix_seconds(),
        exp: token.expires_at.unix_seconds(),
        scope: SCOPE_MACHINE.to_owned(),
        machine_id: Some(token.machine.clone()),
        device,
    }
}
