//! The program `ensemble-edge-proxy`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ensemble_chassis::run::<ensemble_edge_proxy::EdgeProxy>()
}
