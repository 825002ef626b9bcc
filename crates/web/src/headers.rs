//! The header fields that go with the page and its files, so that every program that serves them says the same.

use crate::{Coding, File};

/// The field of the policy.
pub const POLICY: &str = "content-security-policy";

/// What the page may do: run and show its own files, and call its own server. `connect` are the other origins that it may connect to,
/// as in `wss://voice.example.com`.
pub fn policy(connect: &[&str]) -> String {
    let connect: String = connect.iter().map(|origin| format!(" {origin}")).collect();
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; \
         connect-src 'self'{connect}; worker-src 'self'; manifest-src 'self'; media-src 'self' blob:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ensemble"
    )
}

/// What the page that shows the interface may do: run its own scripts and call this server. It sets styles on its elements.
const POLICY_OF_DOCS: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl File {
    /// All fields of the answer but the length, names in lower case. `policy` is that of [`policy`], for the files of the app.
    pub fn fields(&self, policy: &str) -> Vec<(&'static str, String)> {
        let policy = if self.is_docs { POLICY_OF_DOCS } else { policy };
        let kept = if self.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
        let mut fields = vec![
            ("content-type", self.content_type.to_owned()),
            ("cache-control", kept.to_owned()),
            ("etag", self.etag.clone()),
            ("vary", "Accept, Accept-Encoding".to_owned()),
            (POLICY, policy.to_owned()),
            ("cross-origin-opener-policy", "same-origin".to_owned()),
            ("referrer-policy", "no-referrer".to_owned()),
            ("permissions-policy", "microphone=(self), camera=(self)".to_owned()),
        ];
        match self.coding {
            Coding::Brotli => fields.push(("content-encoding", "br".to_owned())),
            Coding::Gzip => fields.push(("content-encoding", "gzip".to_owned())),
            Coding::Identity => {}
        }
        fields
    }
}
