//! The double as a program, for tests that start services as processes. Prints its address and key, and serves.

#![expect(clippy::print_stdout, reason = "the program prints its address and keys")]

use ensemble_doubles::livekit::{API_KEY, API_SECRET, AgentPlan, Double};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let double = Double::start()?;
    // Agents that join and are ready at once, so that texts and contexts are delivered.
    double.plan_agents(AgentPlan::default());
    println!("{} {API_KEY} {API_SECRET}", double.url());
    std::future::pending().await
}
