//! What the server says of itself, to anybody.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::transport::Client;

/// The build that answers, and the versions of the interface it speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub name: String,
    /// The release, as in `0.1.0`.
    pub version: String,
    /// The commit it was built from, where the build knew it.
    pub commit: Option<String>,
    /// Path prefixes, such as `v1`.
    pub api: Vec<String>,
}

impl Client {
    pub async fn version(&self) -> Result<Version> {
        self.get(&["v1", "version"]).anonymous().send().await
    }

    /// The public keys that tokens are verified with, as a JWK set (RFC 7517).
    pub async fn jwks(&self) -> Result<serde_json::Value> {
        self.get(&[".well-known", "jwks.json"]).anonymous().send().await
    }

    /// The description of the whole interface (OpenAPI 3.1).
    pub async fn openapi(&self) -> Result<serde_json::Value> {
        self.get(&["openapi.json"]).anonymous().send().await
    }
}
