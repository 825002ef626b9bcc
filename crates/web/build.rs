//! Writes the table of the built page's files (`web/dist`), or of a page that says how to build it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use sha2::{Digest, Sha256};

/// Shown instead of the web app by a program that was built without it.
const FALLBACK: &str = "src/fallback.html";

fn main() -> io::Result<()> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let web = here.join("../../web");
    let built = web.join("dist");
    let mut files = Vec::new();
    println!("cargo::rerun-if-changed={FALLBACK}");
    if built.join("index.html").exists() {
        println!("cargo::rerun-if-changed={}", built.display());
        find(&built, "", &mut files)?;
    } else {
        // Watching a folder that is not there would compile this crate on every build.
        println!("cargo::rerun-if-changed={}", web.display());
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
