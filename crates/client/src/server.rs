//! The server's public information: version, token keys, OpenAPI document.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::transport::Client;

/// The version of the server, and the versions of the interface that it supports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub name: String,
    /// The release, as in `0.1.0`.
    pub version: String,
    /// The commit of the build, if known.
    pub commit: Option<String>,
    /// Path prefixes, such as `v1`.
    pub api: Vec<String>,
    /// Another one for other data of a server at this address, where it has one.
    #[serde(default)]
    pub data_id: Option<String>,
    /// This computer runs it, and was called by a name of loopback.
    #[serde(default)]
    pub local: bool,
}

impl Client {
    pub async fn version(&self) -> Result<Version> {
        self.get(&["v1", "version"]).anonymous().send().await
    }

    /// The public keys that verify tokens, as a JWK set (RFC 7517).
    pub async fn jwks(&self) -> Result<serde_json::Value> {
        self.get(&[".well-known", "jwks.json"]).anonymous().send().await
    }

    /// The OpenAPI 3.1 document of the whole interface.
    pub async fn openapi(&self) -> Result<serde_json::Value> {
        self.get(&["openapi.json"]).anonymous().send().await
    }
}
