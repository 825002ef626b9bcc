//! The memory of an idle service, and the time from its start to readiness.

use anyhow::Result;

use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

const SERVICES: [&str; 6] =
    ["identity", "machine-registry", "session-store", "orchestrator", "voice-gateway", "edge-proxy"];

pub(crate) fn memory_and_start(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    for name in SERVICES {
        let (mut memory, mut start) = (Rounds::default(), Rounds::default());
        for round in 0..options.rounds {
            let file = machine.scratch.path().join(format!("idle-{name}-{round}.db"));
            let database = format!("sqlite:{}", file.display());
            // The peers do not exist: a service must start without them.
            let unavailable = "http://127.0.0.1:9";
            let service = machine.service(
                name,
                &[
                    ("DATABASE_URL", &database),
                    ("IDENTITY_RPC_URL", unavailable),
                    ("MACHINE_REGISTRY_RPC_URL", unavailable),
                    ("ORCHESTRATOR_RPC_URL", unavailable),
                    ("IDENTITY_URL", unavailable),
                    ("MACHINE_REGISTRY_URL", unavailable),
                    ("SESSION_STORE_URL", unavailable),
                    ("ORCHESTRATOR_URL", unavailable),
                    ("VOICE_GATEWAY_URL", unavailable),
                    ("LIVEKIT_URL", unavailable),
                    ("LIVEKIT_WS_URL", "ws://127.0.0.1:9"),
                    ("LIVEKIT_API_KEY", "bench"),
                    ("LIVEKIT_API_SECRET", "bench-secret-bench-secret-bench-secret"),
                    ("VOICE_PUBLIC_KEY", "bench-voice-key-bench-voice-key"),
                    ("PUBLIC_BASE_URL", "http://127.0.0.1:8080"),
                    ("PUBLIC_ORIGINS", "http://127.0.0.1:8080"),
                ],
            )?;
            memory.push(service.resident_mib()?);
            start.push(service.ready_after.as_secs_f64() * 1e3);
        }
        report.alone(&format!("{name}: idle memory, SQLite"), "MiB", memory, Target::AtMost(25.0));
        report.alone(&format!("{name}: ready after start, SQLite"), "ms", start, Target::AtMost(300.0));
    }
    Ok(())
}
