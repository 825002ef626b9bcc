//! The program `ensemble-edge-proxy`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ensemble_chassis::run::<ensemble_edge_proxy::EdgeProxy>()
}
