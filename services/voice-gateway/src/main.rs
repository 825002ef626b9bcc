//! The program of this service.

fn main() -> std::process::ExitCode {
    ensemble_chassis::run::<ensemble_voice_gateway::VoiceGateway>()
}
