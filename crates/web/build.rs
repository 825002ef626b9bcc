//! Writes the table of the built page's files (`web/dist`), or of a page that says how to build it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use sha2::{Digest, Sha256};

/// Shown instead of the web app by a program that was built without it.
const FALLBACK: &str = "src/fallback.html";

/// Set by `make run`, so that npm and cargo work at the same time. Otherwise the web app is built before.
const BUILD_WEB: &str = "ENSEMBLE_BUILD_WEB";
/// What it is built from, below the repository's root.
const SOURCES: [&str; 6] =
    ["docs/openapi.json", "web/docs", "web/index.html", "web/package-lock.json", "web/public", "web/src"];

fn main() -> io::Result<()> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = here.join("../..");
    let web = root.join("web");
    println!("cargo::rerun-if-env-changed={BUILD_WEB}");
    if variable(BUILD_WEB).is_ok() {
        let client = fs::read_dir(root.join("clients/typescript/src"))?.collect::<io::Result<Vec<_>>>()?;
        // openapi.ts is made from docs/openapi.json while the web app is built.
        let client = client.iter().map(fs::DirEntry::path).filter(|path| !path.ends_with("openapi.ts"));
        for source in SOURCES.map(|source| root.join(source)).into_iter().chain(client) {
            println!("cargo::rerun-if-changed={}", source.display());
        }
        if !Command::new("make").arg("web").current_dir(&root).status()?.success() {
            return Err(io::Error::other("make web failed"));
        }
    }
    let built = web.join("dist");
    let is_built = built.join("index.html").exists();
    if variable(BUILD_WEB).is_err() {
        // Watching a folder that is not there would compile this crate on every build.
        println!("cargo::rerun-if-changed={}", if is_built { &built } else { &web }.display());
    }
    let mut files = Vec::new();
    println!("cargo::rerun-if-changed={FALLBACK}");
    if is_built {
        find(&built, "", &mut files)?;
    } else {
        println!("cargo::warning=the web app is not built, so the program will serve a page that says how: make web");
        files.push(("index.html".to_owned(), here.join(FALLBACK)));
    }
    files.sort();
    let rows = files.iter().map(|(name, path)| {
        let sha256: [u8; 32] = Sha256::digest(fs::read(path)?).into();
        Ok(format!("    Embedded {{ path: {name:?}, bytes: include_bytes!({path:?}), sha256: {sha256:?} }},\n"))
    });
    let rows = rows.collect::<io::Result<String>>()?;
    fs::write(Path::new(&variable("OUT_DIR")?).join("files.rs"), format!("&[\n{rows}]\n"))
}

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script its folders by variables")]
fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}

/// The files below a folder: their paths on the server, and where they are.
fn find(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            find(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.push((name, entry.path()));
        }
    }
    Ok(())
}
