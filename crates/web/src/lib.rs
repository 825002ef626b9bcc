//! The files of the web app, compiled into the program, and which of them answers a path. With the feature `here` it serves them to
//! browsers on this computer, and compares them with what another server sends. Without it, it knows no HTTP server.
//!
//! `web/` is built by `make web`. Without it there is one page, which says how to build the others.

use std::fmt::Write as _;

pub use headers::{POLICY, policy};

mod headers;
#[cfg(feature = "here")]
pub mod serve;
#[cfg(feature = "here")]
pub mod verify;

struct Embedded {
    path: &'static str,
    bytes: &'static [u8],
    sha256: [u8; 32],
}

/// All files, by their paths. The build script writes the table.
static FILES: &[Embedded] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Brotli,
    Gzip,
    Identity,
}

/// A file of the page, ready to be sent.
pub struct File {
    pub bytes: &'static [u8],
    pub coding: Coding,
    pub content_type: &'static str,
    /// A strong entity tag with its quotes (RFC 9110, section 8.8.3): another one for each coding.
    pub etag: String,
    /// SHA-256 of `bytes`.
    pub sha256: [u8; 32],
    /// Its name changes when its contents do, so that it may be kept for ever.
    pub is_immutable: bool,
    /// It belongs to the page that shows the interface, which has rules of its own.
    is_docs: bool,
}

/// Where a person can be in the app: a path that is one of these or below one is answered with the page.
pub const ROUTES: [&str; 9] = ["", "join", "link", "machines", "runs", "sessions", "settings", "share", "start"];

/// Whether the app has a screen at this path, as in `/sessions/<id>`. A path to a file is none: its last part has a dot.
pub fn is_route(path: &str) -> bool {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let first = parts.next().unwrap_or_default();
    ROUTES.contains(&first) && !path.rsplit('/').next().unwrap_or_default().contains('.')
}

/// The page itself, for all its routes.
pub fn page(accepted: &str) -> Option<File> {
    file("index.html", accepted)
}

/// The file at a path without its first slash. `accepted` is the request's `Accept-Encoding`.
pub fn file(path: &str, accepted: &str) -> Option<File> {
    // The compressed forms are chosen here and are no files of their own.
    if path.ends_with(".br") || path.ends_with(".gz") {
        return None;
    }
    let (embedded, coding) = [(".br", Coding::Brotli), (".gz", Coding::Gzip), ("", Coding::Identity)]
        .into_iter()
        .filter(|(_, coding)| accepts(accepted, *coding))
        .find_map(|(ending, coding)| Some((embedded(&format!("{path}{ending}"))?, coding)))?;
    let mut etag = String::from("\"");
    for byte in embedded.sha256.iter().take(16) {
        let _ = write!(etag, "{byte:02x}");
    }
    etag.push('"');
    Some(File {
        bytes: embedded.bytes,
        coding,
        content_type: content_type(path),
        etag,
        sha256: embedded.sha256,
        is_immutable: path.starts_with("assets/"),
        is_docs: path.starts_with("docs/"),
    })
}

fn embedded(path: &str) -> Option<&'static Embedded> {
    FILES.get(FILES.binary_search_by(|file| file.path.cmp(path)).ok()?)
}

/// Every file, by its path, without the compressed forms.
pub fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.path).filter(|path| !path.ends_with(".br") && !path.ends_with(".gz"))
}

/// Whether the program was built with the web app.
pub fn is_built() -> bool {
    paths().any(|path| path.starts_with("assets/"))
}

/// Whether an `Accept-Encoding` takes this coding (RFC 9110, section 12.5.3). Browsers send no weights but 0 and 1 in practice; any
/// weight above 0 is a yes.
fn accepts(accepted: &str, coding: Coding) -> bool {
    let name = match coding {
        Coding::Brotli => "br",
        Coding::Gzip => "gzip",
        Coding::Identity => return true,
    };
    accepted.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_it = parts.next().is_some_and(|found| found.eq_ignore_ascii_case(name));
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_it && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_the_app_are_known_and_files_are_none() {
        for path in ["/", "/sessions/0199", "/machines", "/settings/devices", "/share/abc"] {
            assert!(is_route(path), "{path}");
        }
        for path in ["/v1/sessions", "/sessionsx", "/sessions/a.js", "/favicon.ico", "/docs/", "/metrics", "/v9"] {
            assert!(!is_route(path), "{path}");
        }
    }

    #[test]
    fn the_coding_is_one_that_the_browser_takes() {
        for (accepted, coding, is_taken) in [
            ("gzip, deflate, br, zstd", Coding::Brotli, true),
            ("gzip, deflate", Coding::Brotli, false),
            ("gzip, deflate", Coding::Gzip, true),
            ("br;q=0, gzip;q=0.5", Coding::Brotli, false),
            ("br;q=0, GZIP; q=0.5", Coding::Gzip, true),
            ("", Coding::Gzip, false),
            ("", Coding::Identity, true),
            ("brotli", Coding::Brotli, false),
        ] {
            assert_eq!(accepts(accepted, coding), is_taken, "{accepted} {coding:?}");
        }
    }

    #[test]
    fn there_is_always_a_page() {
        let page = page("").unwrap();
        assert!(page.coding == Coding::Identity && page.bytes.starts_with(b"<!doctype html>"));
        assert!(page.content_type.starts_with("text/html") && !page.is_immutable);
        assert!(file("nothing.js", "br").is_none() && file("index.html.br", "br").is_none());
        assert!(paths().any(|path| path == "index.html"));
    }

    #[test]
    fn each_file_has_its_tag_for_each_coding_and_only_hashed_names_are_kept_for_ever() {
        for path in paths() {
            let plain = file(path, "").unwrap();
            let packed = file(path, "gzip").unwrap();
            assert_eq!(plain.etag == packed.etag, packed.coding == Coding::Identity, "{path}");
            assert!(plain.etag.len() == 34 && plain.content_type != "application/octet-stream", "{path}");
            assert_eq!(plain.is_immutable, path.starts_with("assets/"), "{path}");
        }
    }
}
