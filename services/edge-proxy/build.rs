//! Unpacks the files of Swagger UI that the documentation page needs. The archive holds all of its sources.

use std::error::Error;
use std::io::Read;
use std::path::PathBuf;

use flate2::read::DeflateDecoder;
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;

const FILES: [&str; 7] = [
    "favicon-16x16.png",
    "favicon-32x32.png",
    "index.css",
    "index.html",
    "swagger-ui-bundle.js",
    "swagger-ui-standalone-preset.js",
    "swagger-ui.css",
];

struct Entry<'a> {
    name: &'a str,
    is_deflated: bool,
    packed: &'a [u8],
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let target = PathBuf::from(out_dir()?);
    let (mut rest, mut written) = (SWAGGER_UI_VENDORED, 0);
    while let Some(entry) = next(&mut rest) {
        // swagger-ui-5.32.6/dist/index.html, and nothing from further below.
        let Some((_, name)) = entry.name.split_once('/') else { continue };
        let Some(name) = name.strip_prefix("dist/").filter(|name| FILES.contains(name)) else { continue };
        let mut contents = Vec::new();
        if entry.is_deflated {
            DeflateDecoder::new(entry.packed).read_to_end(&mut contents)?;
        } else {
            contents.extend_from_slice(entry.packed);
        }
        std::fs::write(target.join(name), contents)?;
        written += 1;
    }
    if written == FILES.len() { Ok(()) } else { Err("the archive of Swagger UI lacks a file".into()) }
}

/// Takes the next file off a zip archive (APPNOTE.TXT, 4.3.7). In this archive each file's lengths stand before it.
fn next<'a>(archive: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (head, rest) = archive.split_at_checked(30)?;
    let short = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let packed_len = u32::from_le_bytes(head.get(18..22)?.try_into().ok()?);
    if !head.starts_with(b"PK\x03\x04") {
        return None;
    }
    let (name, rest) = rest.split_at_checked(short(26)?.into())?;
    let (_, rest) = rest.split_at_checked(short(28)?.into())?;
    let (packed, rest) = rest.split_at_checked(usize::try_from(packed_len).ok()?)?;
    *archive = rest;
    Some(Entry { name: std::str::from_utf8(name).ok()?, is_deflated: short(8)? == 8, packed })
}

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script its folders by variables")]
fn out_dir() -> Result<String, std::env::VarError> {
    std::env::var("OUT_DIR")
}
