//! Credentials that are not access tokens, such as the voice gateway's application key.

use actix_web::HttpRequest;
use ensemble_types::problem::Problem;

/// Decides whether a request to a [`crate::Access::VoiceKey`] route is accepted. It must be quick and must not block.
pub trait Gate: Send + Sync {
    /// `Err` is the problem to answer with: 401, or 429 after too many wrong keys.
    fn check(&self, request: &HttpRequest) -> Result<(), Problem>;
}
