//! Who is calling: the only place where a token is accepted, and the only place where 401 is decided.
//!
//! Every service verifies tokens itself; nothing that the edge adds is trusted.

mod access;
mod caller;
mod gate;
mod jwt;
mod keys;

pub use access::Access;
pub use caller::{AuthContext, Caller, bearer, caller_of};
pub use gate::Gate;
pub use jwt::{
    AUDIENCE_MACHINE, AUDIENCE_USER, BadToken, Claims, ISSUER, SCOPE_MACHINE, SCOPE_USER, install_provider, sign,
};
pub use keys::{FixedKeys, KeySet, KeySource, KeysUnavailable};
