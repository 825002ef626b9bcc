//! Runs the service.

fn main() -> std::process::ExitCode {
    ensemble_chassis::run::<ensemble_session_store::SessionStore>()
}
