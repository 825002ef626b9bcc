//! The voice gateway as a program.

fn main() -> std::process::ExitCode {
    ensemble_chassis::run::<ensemble_voice_gateway::VoiceGateway>()
}
