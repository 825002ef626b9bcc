//! Authentication: the only module that verifies the tokens of users and machines.
//!
//! Every service verifies tokens itself and trusts nothing that the edge adds.

mod access;
mod caller;
mod device;
mod gate;
mod jwt;
mod keys;
mod voice_tools;

pub use access::Access;
pub use caller::{AuthContext, Caller, bearer, caller_of};
pub use device::DeviceKey;
pub use gate::Gate;
pub use jwt::{
    AUDIENCE_MACHINE, AUDIENCE_RECOVERY, AUDIENCE_USER, BadToken, Claims, ISSUER, SCOPE_MACHINE, SCOPE_RECOVERY,
    SCOPE_USER, install_provider, sign,
};
pub use keys::{FixedKeys, KeySet, KeySource, KeysUnavailable};
pub use voice_tools::{AUDIENCE_VOICE_TOOLS, VoiceToolClaims};

#[cfg(test)]
mod tests;
