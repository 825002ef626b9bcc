//! The tests of `clients/typescript`: its own, and those against this program, its services and a real agent.

use std::path::Path;
use std::process::Command;

use ensemble_doubles::model::StandIn;

#[test]
fn the_typescript_client_works() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let model = runtime.block_on(async { StandIn::start().unwrap() });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript");
    assert!(
        folder.join("node_modules").is_dir(),
        "\n\nIts packages are not installed. Run `clients/typescript/install` (or `make test`, which does) and try again.\n\n"
    );
    let output = Command::new("npm")
        .args(["test", "--silent"])
        .current_dir(&folder)
        .env("ENSEMBLE", env!("CARGO_BIN_EXE_ensemble"))
        .env("MODEL_STAND_IN", model.url())
        .output()
        .expect("this test needs Node.js with npm");
    let shown = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&shown));
}
