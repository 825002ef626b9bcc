//! Generates Rust from the contracts in `proto/`: messages by prost, and for each service one trait, one client and one
//! mount.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use prost_build::{Method, Service, ServiceGenerator};

const PROTO: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    find(Path::new(PROTO), &mut files)?;
    files.sort();
    println!("cargo:rerun-if-changed={PROTO}");
    let contracts = protox::compile(&files, [PROTO])?;
    prost_build::Config::new().service_generator(Box::new(OneTrait)).compile_fds(contracts)?;
    Ok(())
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "proto") {
            files.push(path);
        }
    }
    Ok(())
}

/// Writes one object-safe trait for each service. The service implements it, and so does the generated client, so that
/// a test can implement the peer itself.
struct OneTrait;

impl ServiceGenerator for OneTrait {
    fn generate(&mut self, service: Service, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = write_trait(&service, out)
            .and_then(|()| write_client(&service, out))
            .and_then(|()| write_mount(&service, out));
    }
}

fn write_trait(service: &Service, out: &mut String) -> std::fmt::Result {
    write_doc(&service.comments.leading, "", out)?;
    writeln!(out, "pub trait {}: Send + Sync + 'static {{", service.name)?;
    for method in &service.methods {
        write_doc(&method.comments.leading, "    ", out)?;
        writeln!(out, "    {};", signature(method))?;
    }
    writeln!(out, "}}")
}

fn write_client(service: &Service, out: &mut String) -> std::fmt::Result {
    let name = &service.name;
    writeln!(out, "/// Calls [`{name}`] of a peer.")?;
    writeln!(out, "#[derive(Clone, Debug)]\npub struct {name}Client(crate::Channel);")?;
    writeln!(out, "impl {name}Client {{")?;
    writeln!(out, "    pub fn new(channel: crate::Channel) -> Self {{ Self(channel) }}\n}}")?;
    writeln!(out, "impl {name} for {name}Client {{")?;
    for method in &service.methods {
        writeln!(out, "    {} {{", signature(method))?;
        let (path, kind) = (path(service, method), if is_read(method) { "Read" } else { "Write" });
        writeln!(out, "        Box::pin(self.0.call({path:?}, crate::CallKind::{kind}, request))\n    }}")?;
    }
    writeln!(out, "}}")
}

fn write_mount(service: &Service, out: &mut String) -> std::fmt::Result {
    let name = &service.name;
    writeln!(out, "/// Serves [`{name}`] on the internal listener.")?;
    writeln!(
        out,
        "pub fn mount_{}(service: ::std::sync::Arc<dyn {name}>) -> Vec<::ensemble_chassis::RpcMount> {{",
        snake(name)
    )?;
    writeln!(out, "    vec![")?;
    for method in &service.methods {
        let path = path(service, method);
        writeln!(out, "        crate::server::mount({path:?}, {{")?;
        writeln!(out, "            let service = ::std::sync::Arc::clone(&service);")?;
        writeln!(out, "            move |request| {{")?;
        writeln!(out, "                let service = ::std::sync::Arc::clone(&service);")?;
        writeln!(out, "                async move {{ service.{}(request).await }}", method.name)?;
        writeln!(out, "            }}\n        }}),")?;
    }
    writeln!(out, "    ]\n}}")
}

fn signature(method: &Method) -> String {
    format!(
        "fn {}(&self, request: {}) -> ::futures_util::future::BoxFuture<'_, Result<{}, crate::RpcError>>",
        method.name, method.input_type, method.output_type
    )
}

fn path(service: &Service, method: &Method) -> String {
    format!("{}.{}/{}", service.package, service.proto_name, method.proto_name)
}

/// A call that changes nothing may be repeated.
fn is_read(method: &Method) -> bool {
    method.options.idempotency_level().as_str_name() == "NO_SIDE_EFFECTS"
}

fn write_doc(lines: &[String], indent: &str, out: &mut String) -> std::fmt::Result {
    for line in lines.iter().flat_map(|line| line.lines()) {
        writeln!(out, "{indent}///{}{}", if line.starts_with(' ') { "" } else { " " }, line.trim_end())?;
    }
    Ok(())
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}
