//! Files that a server serves to browsers, as they were sent: not decoded, and no redirect followed.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::transport::Client;

/// An answer as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub status: u16,
    /// Names in lower case. A value that is not text is empty.
    pub fields: Vec<(String, String)>,
    /// Nothing when it is longer than was asked for.
    pub body: Option<Vec<u8>>,
}

impl Client {
    /// A file by its path without the first slash, at most `most` bytes long, complete within `within`.
    pub async fn file(&self, path: &str, fields: &[(&str, &str)], most: usize, within: Duration) -> Result<Sent> {
        let (http, origin) = (&self.0.http, self.origin());
        let mut call = http.get(format!("{}/{path}", self.base().as_str().trim_end_matches('/'))).timeout(within);
        for (name, value) in fields {
            call = call.header(*name, *value);
        }
        let failed = |error: reqwest::Error| match error.is_timeout() && !error.is_connect() {
            true => Error::TimedOut { origin: origin.to_owned(), waited: within },
            false => Error::of(origin, error),
        };
        let mut answer = call.send().await.map_err(failed)?;
        let fields = answer.headers().iter();
        let fields =
            fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned())).collect();
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            if body.len() + piece.len() > most {
                return Ok(Sent { status, fields, body: None });
            }
            body.extend_from_slice(&piece);
        }
        Ok(Sent { status, fields, body: Some(body) })
    }
}
