//! Unpacks the files of Swagger UI that the documentation page needs. The archive holds all of its sources.

use std::error::Error;
use std::fs::File;
use std::io::{Cursor, copy};
use std::path::PathBuf;

use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::ZipArchive;

const FILES: [&str; 7] = [
    "favicon-16x16.png",
    "favicon-32x32.png",
    "index.css",
    "index.html",
    "swagger-ui-bundle.js",
    "swagger-ui-standalone-preset.js",
    "swagger-ui.css",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let target = PathBuf::from(out_dir()?);
    let mut archive = ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED))?;
    // The first folder's name has the version: swagger-ui-5.32.6/dist/index.html.
    let first = archive.by_index(0)?.name()?.to_string();
    let root = first.split('/').next().unwrap_or_default().to_owned();
    for name in FILES {
        copy(&mut archive.by_name(&format!("{root}/dist/{name}"))?, &mut File::create(target.join(name))?)?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script its folders by variables")]
fn out_dir() -> Result<String, std::env::VarError> {
    std::env::var("OUT_DIR")
}
