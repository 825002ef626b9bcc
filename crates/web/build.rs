//! Puts the built page (`web/dist`) where rust-embed takes it from, or a page that says how to build it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Shown instead of the web app by a program that was built without it.
const FALLBACK: &str = include_str!("src/fallback.html");

fn main() -> io::Result<()> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../../web");
    let built = root.join("dist");
    let target = PathBuf::from(variable("OUT_DIR")?).join("web");
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    fs::create_dir_all(&target)?;
    println!("cargo::rerun-if-changed=src/fallback.html");
    if built.join("index.html").exists() {
        println!("cargo::rerun-if-changed={}", built.display());
        return copy(&built, &target);
    }
    // Watching a folder that is not there would compile this crate on every build.
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::warning=the web app is not built, so the program will serve a page that says how: make web");
    fs::write(target.join("index.html"), FALLBACK)
}

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script its folders by variables")]
fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
