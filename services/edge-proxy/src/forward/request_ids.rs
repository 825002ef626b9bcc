//! Names for requests whose callers gave them none.
//!
//! A name must be unique, and nobody gains by guessing one: so the randomness is drawn once for each thread, and the
//! requests are counted. A random id for each would cost a system call.

use std::cell::Cell;

use actix_http::header::HeaderValue;
use bytes::Bytes;
use ensemble_types::ids::TokenId;

/// The names that one thread gives.
#[derive(Debug)]
pub struct RequestIds {
    thread: String,
    given: Cell<u64>,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestIds {
    pub fn new() -> Self {
        Self { thread: TokenId::generate().uuid().simple().to_string(), given: Cell::new(0) }
    }

    /// 32 hexadecimal digits of the thread and the number of the request, as in `0190…-2f`.
    pub fn next(&self) -> HeaderValue {
        let number = self.given.get();
        self.given.set(number.wrapping_add(1));
        let id = format!("{}-{number:x}", self.thread);
        HeaderValue::from_maybe_shared(Bytes::from(id)).unwrap_or(HeaderValue::from_static("unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_requests_have_one_name() {
        let (one, other) = (RequestIds::new(), RequestIds::new());
        let ids = [one.next(), one.next(), other.next(), other.next()];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[at + 1..].contains(id));
            assert!(id.to_str().is_ok_and(|id| id.len() <= 64));
        }
    }
}
