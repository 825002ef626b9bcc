//! The small page behind a public link, for who has no web app. It is the same for every link: what differs, the browser fetches and opens itself, with
//! the key from the fragment of the address, which no server sees.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, VARY};
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ensemble_chassis::{HandlerResult, Path, State};
use sha2::{Digest, Sha256};

use crate::EdgeProxy;
use crate::domain::cors::origin_of;

const PAGE: &str = include_str!("share.html");

/// The page, with the policy that names the one script and the one style that it may run.
pub(crate) struct SharePage {
    html: Bytes,
    policy: String,
}

impl SharePage {
    /// `api` is where the interface is; empty: where the page is.
    pub(crate) fn new(api: &str) -> Self {
        let origin = origin_of(api).unwrap_or_default();
        let html = PAGE.replace("{{api}}", &origin);
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self' {origin}; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            hash_of(&html, "<script>", "</script>"),
            hash_of(&html, "<style>", "</style>"),
        );
        Self { html: html.into(), policy }
    }
}

/// The web app for browsers. Programs, and browsers of a program that was built without the app, get the small page.
pub(crate) async fn page(
    edge: State<EdgeProxy>,
    _token: Path<String>,
    request: HttpRequest,
) -> HandlerResult<HttpResponse> {
    if ensemble_web::is_built() && super::web::wants_html(&request) {
        let mut page = super::web::page(&edge, &request)?;
        // The address is a secret, which a cache on a disk would keep.
        page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        return Ok(page);
    }
    let page = &edge.share_page;
    let mut answer = HttpResponse::Ok();
    answer
        .content_type("text/html; charset=utf-8")
        .insert_header((CONTENT_SECURITY_POLICY, page.policy.as_str()))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        .insert_header((VARY, "Accept"));
    Ok(answer.body(page.html.clone()))
}

/// A CSP source that allows exactly what stands between two marks (CSP 3, section 2.3.1).
fn hash_of(html: &str, from: &str, to: &str) -> String {
    let inside = html.split_once(from).and_then(|(_, rest)| rest.split_once(to)).map_or("", |(inside, _)| inside);
    format!("sha256-{}", STANDARD.encode(Sha256::digest(inside)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_calls_the_interface_where_it_is() {
        let page = SharePage::new("https://api.example.com/base");
        let html = std::str::from_utf8(&page.html).expect("text");
        assert!(html.contains("<meta name=\"api\" content=\"https://api.example.com\">"));
        assert!(page.policy.contains("connect-src 'self' https://api.example.com;"));
        assert!(!SharePage::new("").policy.contains("http"));
    }

    #[test]
    fn the_policy_names_script_and_style_by_their_hashes() {
        let policy = SharePage::new("").policy;
        assert_eq!(policy.matches("'sha256-").count(), 2);
        assert!(!policy.contains("unsafe"));
        let empty = STANDARD.encode(Sha256::digest(""));
        assert!(!policy.contains(&empty), "both were found");
    }
}
