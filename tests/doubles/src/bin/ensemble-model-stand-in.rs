//! The stand-in as a program, for trying a coding agent by hand. It prints how to connect each agent, and serves.

#![expect(clippy::print_stdout, reason = "the program prints how to connect each agent")]

use std::net::TcpListener;

use ensemble_doubles::model::StandIn;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let stand_in = StandIn::listen(TcpListener::bind(address)?)?;
    let url = stand_in.url();
    println!("ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=stand-in claude -p");
    println!(
        "OPENAI_API_KEY=stand-in codex exec -c model_provider=x -c 'model_providers.x={{name=\"x\",base_url=\"{url}/v1\",\
         env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}}' -"
    );
    println!("GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY=stand-in gemini -p");
    tokio::signal::ctrl_c().await
}
